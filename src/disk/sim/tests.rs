//! The tests' disk, tested.

use super::*;

fn write(disk: &SimDisk, path: &Path, bytes: &[u8]) -> Box<dyn File> {
    let file = disk.open(path, OpenMode::CreateOrTruncate).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// All states of a recording, each as the files and their contents.
fn states(disk: &SimDisk) -> Vec<String> {
    let mut states = Vec::new();
    let explored = explore(&disk.recorded(), disk.recorded().ops().len(), 200, &mut |state| {
        let mut files: Vec<String> = RealDisk.list(&state.dir).unwrap().iter().map(|path| show(path)).collect();
        files.sort();
        states.push(files.join(" "));
        Ok(())
    });
    assert_eq!(explored.states, states.len());
    states.sort();
    states.dedup();
    states
}

fn show(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    let runs: Vec<String> =
        bytes.chunk_by(|a, b| a == b).map(|run| format!("{}{}", run.len(), run[0] as char)).collect();
    format!("{}:{}", path.file_name().unwrap().to_str().unwrap(), runs.join("").replace('\0', "."))
}

#[test]
fn what_is_not_synced_may_be_there_or_not() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let path = dir.path().join("f");
    let file = write(&disk, &path, b"a");
    // Neither the name nor the data, the name alone, both, and the name with the length.
    assert_eq!(states(&disk), ["", "f:", "f:1.", "f:1a"]);
    file.sync_data().unwrap();
    assert_eq!(states(&disk), ["", "f:1a"]);
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(states(&disk), ["f:1a"]);
    file.write_all_at(b"b", 0).unwrap();
    file.write_all_at(b"c", 1).unwrap();
    assert_eq!(states(&disk), ["f:1a", "f:1a1.", "f:1a1c", "f:1b", "f:1b1.", "f:1b1c"]);
    file.sync_all().unwrap();
    disk.rename(&path, &dir.path().join("g")).unwrap();
    assert_eq!(states(&disk), ["f:1b1c", "g:1b1c"]);
    disk.sync_dir(dir.path()).unwrap();
    disk.remove(&dir.path().join("g")).unwrap();
    assert_eq!(states(&disk), ["", "g:1b1c"]);
}

#[test]
fn a_write_tears_at_sectors_and_a_length_is_a_matter_of_its_own() {
    let dir = scratch();
    std::fs::write(dir.path().join("f"), [b'a'; 1200]).unwrap();
    let disk = SimDisk::recording(dir.path());
    let file = disk.open(&dir.path().join("f"), OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[b'b'; 1000], 100).unwrap();
    let parts = |first, second, third| {
        let runs = [(100, b'a'), (412, first), (512, second), (76, third), (100, b'a')];
        runs.iter().flat_map(|(count, byte)| vec![*byte; *count]).collect::<Vec<u8>>()
    };
    let mut expected = Vec::new();
    for set in 0..8 {
        let pick = |bit: u8| if set >> bit & 1 == 1 { b'b' } else { b'a' };
        let scratch = scratch();
        let path = scratch.path().join("f");
        std::fs::write(&path, parts(pick(0), pick(1), pick(2))).unwrap();
        expected.push(show(&path));
    }
    expected.sort();
    assert_eq!(states(&disk), expected);
    file.sync_data().unwrap();
    file.set_len(0).unwrap();
    file.allocate(0, 3).unwrap();
    assert_eq!(states(&disk), ["f:", "f:100a1000b100a", "f:3."]);
}

#[test]
fn a_failed_sync_is_never_made_good() {
    let dir = scratch();
    std::fs::write(dir.path().join("f"), b"a").unwrap();
    let disk = SimDisk::recording(dir.path());
    let file = disk.open(&dir.path().join("f"), OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"b", 0).unwrap();
    disk.fail(Fault::after(0, &[Call::SyncData], Failure::Errno(EIO)));
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    file.sync_data().unwrap();
    assert_eq!(states(&disk), ["f:1a", "f:1b"]);
    assert!(disk.recorded().goes_on_after_a_failed_sync());
    file.write_all_at(b"b", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(states(&disk), ["f:1b"]);
}

#[test]
fn a_directory_that_is_not_certain_takes_its_files_with_it() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let below = dir.path().join("d");
    disk.create_dir_all(&below).unwrap();
    write(&disk, &below.join("f"), b"a").sync_all().unwrap();
    disk.sync_dir(&below).unwrap();
    let found = |disk: &SimDisk| {
        let mut found = Vec::new();
        explore(&disk.recorded(), disk.recorded().ops().len(), 10, &mut |state| {
            found.push(state.dir.join("d/f").exists());
            Ok(())
        });
        found
    };
    assert_eq!(found(&disk), [true, false]);
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(found(&disk), [true]);
}

#[test]
fn faults_strike_once_always_or_for_good() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let file = write(&disk, &dir.path().join("f"), b"1234");
    disk.fail(Fault::after(1, &[Call::Write], Failure::Short(ENOSPC)));
    file.write_all_at(b"abcd", 0).unwrap();
    assert_eq!(file.write_all_at(b"wxyz", 0).unwrap_err().raw_os_error(), Some(ENOSPC));
    file.write_all_at(b"!", 3).unwrap();
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"wxc!");
    disk.set_full(true);
    assert!(file.allocate(0, 5).is_err() && file.write_all_at(b"xx", 3).is_err());
    file.write_all_at(b"5", 3).unwrap();
    disk.fail(Fault::after(0, &[Call::SyncAll], Failure::Kill));
    assert!(file.sync_all().is_err() && file.write_all_at(b"!", 0).is_err() && disk.list(dir.path()).is_err());
    disk.heal();
    file.allocate(0, 5).unwrap();
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"wxc5\0");
    assert_eq!(disk.faults_struck(), 2);
}

#[test]
fn a_promise_is_what_the_marks_say() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    [1, 2, 3].iter().for_each(|step| disk.begin(*step));
    disk.done(2);
    assert_eq!(disk.promise(), Promise { steps: vec![1, 2, 3], done: 2 });
    disk.restarted(2);
    disk.begin(4);
    assert_eq!(disk.promise(), Promise { steps: vec![1, 2, 4], done: 2 });
    assert_eq!(disk.promise().check(4), Err("holds 4 steps, of which 2 were promised and 3 begun".to_owned()));
    assert_eq!(disk.promise().next_step(), 5);
}
