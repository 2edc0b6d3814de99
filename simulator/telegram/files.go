package telegram

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// File is an uploaded or referenced file of a message.
type File struct {
	Kind string `json:"kind"` // photo, document, audio …
	ID   string `json:"file_id"`
	Name string `json:"name,omitempty"`
	MIME string `json:"mime_type,omitempty"`
	Size int    `json:"size"`           // bytes
	URL  string `json:"url,omitempty"`  // where the bot gave an address; the simulator never fetches it
	Path string `json:"path,omitempty"` // below /file/bot<token>/
}

// stored is a file's content.
type stored struct {
	File
	content []byte
}

// fileStore keeps uploads until their bytes exceed the bound; the oldest go first.
type fileStore struct {
	next  int64
	bytes int
	order []string
	byID  map[string]*stored
	paths map[string]*stored
}

func (fs *fileStore) add(f File, content []byte) File {
	fs.next++
	f.ID = fmt.Sprintf("sim-%s-%d", f.Kind, fs.next)
	f.Size = len(content)
	f.Name = path.Base("/" + strings.ReplaceAll(f.Name, "\\", "/"))
	if f.Name == "/" {
		f.Name = "file"
	}
	if f.MIME == "" {
		f.MIME = mime.TypeByExtension(path.Ext(f.Name))
	}
	if f.MIME == "" {
		f.MIME = http.DetectContentType(content)
	}
	f.Path = fmt.Sprintf("%ss/file_%d%s", f.Kind, fs.next, path.Ext(f.Name))
	if fs.byID == nil {
		fs.byID, fs.paths = map[string]*stored{}, map[string]*stored{}
	}
	st := &stored{File: f, content: content}
	fs.byID[f.ID], fs.paths[f.Path] = st, st
	fs.order = append(fs.order, f.ID)
	fs.bytes += len(content)
	for (fs.bytes > maxFileBytes || len(fs.order) > defaultKeep) && len(fs.order) > 1 {
		old := fs.byID[fs.order[0]]
		fs.order = fs.order[1:]
		fs.bytes -= len(old.content)
		delete(fs.byID, old.ID)
		delete(fs.paths, old.Path)
	}
	return f
}

// Content returns a stored file by its file_id.
func (s *Server) Content(fileID string) (File, []byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files.byID[fileID]
	if f == nil {
		return File{}, nil, false
	}
	return f.File, f.content, true
}

// serveFile answers GET /file/bot<token>/<path>.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	token, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/file/bot"), "/")
	s.mu.Lock()
	_, refused := s.login(token)
	f := s.files.paths[name]
	down := s.takeFault(faultQuery{kinds: []FaultKind{FaultDown}, method: "file", act: true})
	s.mu.Unlock()
	switch {
	case down != nil:
		writeAnswer(w, htmlError(http.StatusBadGateway))
	case refused != nil:
		writeAnswer(w, refusal(refused))
	case f == nil:
		writeAnswer(w, refusal(refuse(http.StatusNotFound, "")))
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
	}
}
