//! One Space: its runtime, its lane slots, its socket and the handing over of descriptors
