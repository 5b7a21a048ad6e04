use airlock_model::size::SLOT_BYTES;

use super::*;

fn memory() -> LaneMemory {
    LaneMemory::create(LaneGeometry::STANDARD).unwrap()
}

#[test]
fn slots_keep_what_is_written_and_do_not_touch_each_other() {
    let memory = memory();
    memory.write_slot(3, 0, &[7; 100]).unwrap();
    memory.write_slot(4, 0, &[9; 1]).unwrap();
    memory
        .write_slot(2, SLOT_BYTES as u64 - 1, &[1; 1])
        .unwrap();
    let mut buf = [0; 100];
    memory.read_slot(3, 0, &mut buf).unwrap();
    assert_eq!(buf, [7; 100]);
}

#[test]
fn nothing_outside_a_slot_can_be_reached() {
    let memory = memory();
    let refused = |slot, offset, len| memory.write_slot(slot, offset, &vec![0; len]).is_err();
    assert!(refused(64, 0, 1));
    assert!(refused(u32::MAX, 0, 1));
    assert!(refused(0, SLOT_BYTES as u64, 1));
    assert!(refused(0, 1, SLOT_BYTES));
    assert!(refused(0, u64::MAX, 1));
    assert!(!refused(63, 0, SLOT_BYTES));
    assert!(memory.punch(64).is_err());
}

#[test]
fn punching_gives_the_pages_back() {
    let memory = memory();
    assert_eq!(memory.resident_bytes().unwrap(), 0);
    memory.write_slot(0, 0, &vec![1; SLOT_BYTES]).unwrap();
    memory.write_slot(1, 0, &vec![2; SLOT_BYTES]).unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), 2 * SLOT_BYTES as u64);
    memory.punch(0).unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), SLOT_BYTES as u64);
    let mut byte = [9];
    memory.read_slot(0, 5, &mut byte).unwrap();
    assert_eq!(byte, [0]);
    memory.read_slot(1, 5, &mut byte).unwrap();
    assert_eq!(byte, [2]);
}

#[test]
fn its_length_cannot_be_changed() {
    let memory = memory();
    assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
    assert!(rustix::fs::ftruncate(&memory, 1 << 40).is_err());
    assert!(rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).is_err());
}

#[test]
fn a_duplicate_is_the_same_memory() {
    let memory = memory();
    let fd = memory.as_fd().try_clone_to_owned().unwrap();
    let other = LaneMemory::from_fd(fd, LaneGeometry::STANDARD).unwrap();
    memory.dup().unwrap().write_slot(0, 0, &[5]).unwrap();
    let mut byte = [0];
    other.read_slot(0, 0, &mut byte).unwrap();
    assert_eq!(byte, [5]);
}

#[test]
fn descriptors_that_are_no_lane_are_refused() {
    let adopt = |fd: OwnedFd| LaneMemory::from_fd(fd, LaneGeometry::STANDARD).unwrap_err();

    let (pipe, _) = rustix::pipe::pipe().unwrap();
    assert!(matches!(adopt(pipe), AdoptError::NotMemory { .. }));

    let disk = tempfile::tempfile().unwrap();
    assert!(matches!(
        adopt(disk.into()),
        AdoptError::NotSealed { .. } | AdoptError::Io(_)
    ));

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let open = rustix::fs::memfd_create("t", flags).unwrap();
    rustix::fs::ftruncate(&open, LaneGeometry::STANDARD.total_bytes()).unwrap();
    rustix::fs::fcntl_add_seals(&open, SealFlags::SHRINK).unwrap();
    assert!(matches!(adopt(open), AdoptError::NotSealed { .. }));

    let short = rustix::fs::memfd_create("t", flags).unwrap();
    rustix::fs::fcntl_add_seals(&short, SEALS).unwrap();
    assert!(matches!(adopt(short), AdoptError::Length { got: 0, .. }));
}
