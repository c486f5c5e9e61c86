// Package fakemedia writes the files that stand in for a camera and a microphone in browser tests:
// Chromium's --use-file-for-fake-video-capture takes a y4m file, --use-file-for-fake-audio-capture a wav file,
// and it loops both.
//
// The content is computed, the same every time, and moves: a test that counts decoded frames or reads
// pixels sees a change in each frame.
package fakemedia
