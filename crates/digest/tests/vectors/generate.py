#!/usr/bin/env python3
"""Writes leaves.txt: SHA-256 by a second implementation (Python's hashlib) for lengths at every boundary.

Byte i of a file is (i * 31 + i // 251 + seed) % 256. Columns: length, seed, whole-file digest, leaves, root.
Run it in this directory and compare with git.
"""

import hashlib

LEAF = 64 * 1024
LENGTHS = [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, LEAF - 65, LEAF - 1, LEAF, LEAF + 1, LEAF + 64,
           2 * LEAF, 3 * LEAF - 7, 4 * LEAF, 4 * LEAF + 1, 5 * LEAF + 100, 7 * LEAF + 56, 8 * LEAF - 1, 8 * LEAF,
           8 * LEAF + 1, 9 * LEAF, 9 * LEAF + 1, 12 * LEAF - 64, 16 * LEAF + 63]

with open("leaves.txt", "w") as table:
    for seed, length in enumerate(LENGTHS):
        data = bytes((i * 31 + i // 251 + seed) % 256 for i in range(length))
        leaves = [hashlib.sha256(data[at:at + LEAF]).digest() for at in range(0, length, LEAF)]
        root = hashlib.sha256(b"".join(leaves)).hexdigest()
        print(length, seed, hashlib.sha256(data).hexdigest(), len(leaves), root, file=table)
