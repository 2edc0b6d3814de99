package telegram

import (
	"net/http"
	"strconv"
	"time"
)

// apiError is a refusal in the platform's form. With hold set it is not an answer but asks for the call to be run again
// after that time.
type apiError struct {
	code        int
	description string
	parameters  map[string]any
	hold        time.Duration
}

// refuse makes an error whose description starts with the platform's word for the code.
func refuse(code int, text string) *apiError {
	prefix := map[int]string{
		http.StatusBadRequest:            "Bad Request",
		http.StatusUnauthorized:          "Unauthorized",
		http.StatusForbidden:             "Forbidden",
		http.StatusNotFound:              "Not Found",
		http.StatusConflict:              "Conflict",
		http.StatusRequestEntityTooLarge: "Request Entity Too Large",
		http.StatusTooManyRequests:       "Too Many Requests",
	}[code]
	if prefix == "" {
		prefix = "Internal Server Error"
	}
	if text != "" {
		prefix += ": " + text
	}
	return &apiError{code: code, description: prefix}
}

func badRequest(text string) *apiError { return refuse(http.StatusBadRequest, text) }

func forbidden(text string) *apiError { return refuse(http.StatusForbidden, text) }

func conflict(text string) *apiError { return refuse(http.StatusConflict, text) }

func errTooMany(seconds int) *apiError {
	e := refuse(http.StatusTooManyRequests, "retry after "+strconv.Itoa(seconds))
	e.parameters = map[string]any{"retry_after": seconds}
	return e
}

func errMigrated(to int64) *apiError {
	e := badRequest("group chat was upgraded to a supergroup chat")
	e.parameters = map[string]any{"migrate_to_chat_id": to}
	return e
}

// body is the JSON form of an answer.
type body struct {
	OK          bool           `json:"ok"`
	Result      any            `json:"result,omitempty"`
	ErrorCode   int            `json:"error_code,omitempty"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters,omitempty"`
}
