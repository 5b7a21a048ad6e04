//! guestd over a real socket, in this process and as a process of its own.

mod filesystem;
mod plain;
mod process;
mod space;
mod system;
