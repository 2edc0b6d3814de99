//go:build race

package storetest

// raceDetector says that everything takes many times as long.
const raceDetector = true
