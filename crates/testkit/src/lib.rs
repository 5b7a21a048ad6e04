//! Test environments, scripted peers and fault injection. Dev-only
