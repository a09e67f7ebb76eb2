"""The places a program can run: this machine, an SME2 emulator, a phone."""
