package telegram

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxBody bounds a request: an upload plus its fields.
const maxBody = maxUpload + 1<<20 // bytes

// upload is a file of a multipart request.
type upload struct {
	name, mime string
	content    []byte
}

// params are a call's parameters, whatever way they came in.
type params struct {
	values map[string]string
	files  map[string]upload
}

func (p params) text(name string) string { return p.values[name] }

// number returns a whole number; 0 where it is absent or none.
func (p params) number(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(p.values[name]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (p params) flag(name string) bool {
	v := strings.ToLower(p.values[name])
	return v == "true" || v == "1" || v == "yes"
}

// set stores a value. Clients send the word null for what isn't there.
func (p params) set(name, value string) {
	if value != "null" {
		p.values[name] = value
	}
}

func (p params) setAll(values url.Values) {
	for name, list := range values {
		if len(list) > 0 {
			p.set(name, list[0])
		}
	}
}

// readParams reads query, form, multipart and JSON parameters.
func readParams(w http.ResponseWriter, r *http.Request) (params, *apiError) {
	p := params{values: map[string]string{}, files: map[string]upload{}}
	p.setAll(r.URL.Query())
	if r.Body == nil || r.Method == http.MethodGet {
		return p, nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var err error
	switch kind {
	case "multipart/form-data":
		err = p.readMultipart(r)
	case "application/json":
		err = p.readJSON(r.Body)
	default:
		var raw []byte
		if raw, err = io.ReadAll(r.Body); err == nil && kind == "application/x-www-form-urlencoded" {
			values, _ := url.ParseQuery(string(raw))
			p.setAll(values)
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return p, refuse(http.StatusRequestEntityTooLarge, "")
	}
	if err != nil {
		return p, badRequest("can't parse request: " + err.Error())
	}
	return p, nil
}

// readMultipart keeps files in memory; the body's bound is theirs too.
func (p params) readMultipart(r *http.Request) error {
	reader, err := r.MultipartReader()
	if err != nil {
		return err
	}
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		if part.FileName() == "" {
			p.set(part.FormName(), string(content))
			continue
		}
		p.files[part.FormName()] = upload{name: part.FileName(), mime: part.Header.Get("Content-Type"), content: content}
	}
}

// readJSON takes strings as they are and everything else as JSON text.
func (p params) readJSON(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return errors.New("JSON object expected")
	}
	for name, value := range fields {
		var s string
		if json.Unmarshal(value, &s) == nil && value[0] == '"' {
			p.values[name] = s // A quoted "null" is a text.
			continue
		}
		p.set(name, string(value))
	}
	return nil
}
