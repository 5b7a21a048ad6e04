//! The lane: geometry, shared memory, windows, send, receive and verify
