//! Conversions between `airlock.lane.v1` and the model.

use airlock_model::LaneGeometry;

use crate::lane_v1::Geometry;

impl From<LaneGeometry> for Geometry {
    fn from(geometry: LaneGeometry) -> Self {
        Self {
            slots: geometry.slots,
            slot_bytes: geometry.slot_bytes,
            data_offset: geometry.data_offset,
        }
    }
}

impl From<Geometry> for LaneGeometry {
    fn from(geometry: Geometry) -> Self {
        Self {
            slots: geometry.slots,
            slot_bytes: geometry.slot_bytes,
            data_offset: geometry.data_offset,
        }
    }
}
