//! SHA-256 leaves and roots, interleaved hashing and constant-time compare
