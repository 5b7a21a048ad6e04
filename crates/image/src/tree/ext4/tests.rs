use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::process::Command;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::host::find_tool;
use crate::tree::Owners;
use crate::tree::owner::Ownership;
use crate::tree::remove;

/// How much of the file is shuffled: superblock, tables, folders and the first files.
const METADATA_BYTES: u64 = 1 << 20;

/// Without checksums, so that a wrong byte is believed as a hostile one would be.
fn make(folder: &Path) -> std::path::PathBuf {
    let content = folder.join("content");
    for place in ["a/b/c", "d"] {
        fs::create_dir_all(content.join(place)).unwrap();
        for number in 0..20 {
            fs::write(content.join(place).join(format!("f{number}")), "text").unwrap();
        }
    }
    std::os::unix::fs::symlink("../../outside", content.join("a/way")).unwrap();
    let file = folder.join("root.ext4");
    let mke2fs = find_tool("mke2fs").expect("e2fsprogs is installed");
    let output = Command::new(mke2fs)
        .args(["-q", "-t", "ext4", "-b", "1024", "-N", "128"])
        .args(["-O", "^metadata_csum,^has_journal,^resize_inode", "-d"])
        .args([content.as_path(), file.as_path(), Path::new("2M")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    file
}

#[test]
fn a_file_system_full_of_lies_fails_or_not_but_never_gets_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = make(folder.path());
    let whole = fs::read(&file).unwrap();
    fs::create_dir(folder.path().join("outside")).unwrap();
    let tree = folder.path().join("tree");
    let mut state: u64 = 0x2545_f491_4f6c_dd1d;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    // Zeros mostly stand for nothing, and changing them would change nothing.
    let telling: Vec<u64> = (1024..METADATA_BYTES)
        .filter(|place| whole[*place as usize] != 0)
        .collect();
    let mut failed = 0;
    for _ in 0..200 {
        let mut disk = fs::OpenOptions::new().write(true).open(&file).unwrap();
        let places: Vec<u64> = (0..=random(8))
            .map(|_| telling[random(telling.len() as u64) as usize])
            .collect();
        for place in &places {
            disk.seek(SeekFrom::Start(*place)).unwrap();
            disk.write_all(&[random(256) as u8]).unwrap();
        }
        fs::create_dir(&tree).unwrap();
        let cancel = CancellationToken::new();
        let owners = Ownership::Of(Owners::Caller);
        let mut writer = TreeWriter::new(&tree, owners, &cancel).unwrap();
        // A folder that holds itself would go on for long.
        let stop = |files| {
            if files > 200 {
                cancel.cancel();
            }
        };
        failed += u32::from(copy(&file, &mut writer, &stop).is_err());
        drop(writer);
        remove::tree(&tree).unwrap();
        for place in places {
            disk.seek(SeekFrom::Start(place)).unwrap();
            disk.write_all(&whole[place as usize..=place as usize])
                .unwrap();
        }
        assert_eq!(
            fs::read_dir(folder.path().join("outside")).unwrap().count(),
            0
        );
    }
    assert!(failed > 0, "some of the lies were seen");
    assert_eq!(fs::read(&file).unwrap(), whole);
}
