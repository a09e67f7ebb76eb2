"""The Mac's own binaries, run on an emulated CPU: see rig.py."""
