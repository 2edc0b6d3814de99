// Package archtest holds the module's shape by tests: which package may import
// which, and that each has its comment. It has no code of its own.
package archtest
