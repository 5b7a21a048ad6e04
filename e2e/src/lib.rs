//! End-to-end tests of Airlock on real Spaces.
