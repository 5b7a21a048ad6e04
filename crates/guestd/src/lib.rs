//! The in-Space daemon: files, processes, the lane worker and init
