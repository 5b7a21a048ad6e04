//! Airlock SDK: make Spaces, move files in and out, run commands
