//! QEMU command lines, QMP and process handling
