// Package clienttest checks that other people's client libraries work against the simulator without knowing.
package clienttest
