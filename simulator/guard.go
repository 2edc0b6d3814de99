package simulator

import (
	"embed"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guard keeps other web pages away from the control API: by the host (a borrowed DNS name), by the origin, and by
// asking for JSON, which no foreign form can send.
func (s *Simulator) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		if !localName(host) && !slices.ContainsFunc(s.opts.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
			http.Error(w, "the simulator doesn't answer under this host name", http.StatusForbidden)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && !navigation(r) {
			http.Error(w, "other pages may not use the simulator", http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			u, err := url.Parse(origin)
			if err != nil || !strings.EqualFold(u.Host, r.Host) {
				http.Error(w, "other pages may not use the simulator", http.StatusForbidden)
				return
			}
		}
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if r.Method == http.MethodPost && kind != "application/json" {
			http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
			"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// navigation reports whether a person followed a link to the page.
func navigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.URL.Path == "/"
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func localName(host string) bool {
	return net.ParseIP(host) != nil || !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost")
}

//go:embed web/index.html web/page.css web/page.js
var pages embed.FS

func servePage(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pages, "web/index.html")
}

func servePageStyle(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pages, "web/page.css")
}

func servePageScript(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pages, "web/page.js")
}
