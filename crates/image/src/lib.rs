//! Kernel, initramfs and root file system images, and their catalog
