//! The directory that all processes under one gdremu share. It has a file, called a record, for each open `/dev/gdrdrv`
//! and for each exported dma-buf. Nothing is ever written into a record.
//!
//! The descriptor that a program gets for `/dev/gdrdrv` is a descriptor of a new record and holds a lock on it. So
//! Linux tracks every use of the open device (dups, forked children, receivers over a socket, mappings, and processes
//! that were killed). The lock becomes free when the last of them is gone. The *size* of a device's record is set to
//! the number of the device's pins that still hold memory.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Libraries that programs load as the CUDA runtime. build.rs makes them. They have no code, because the library that
/// gdremu preloads has the runtime's functions.
const CUDA_RUNTIMES: [(&str, &[u8]); 2] = [
    ("libcudart.so.12", include_bytes!(concat!(env!("OUT_DIR"), "/libcudart.so.12"))),
    ("libcudart.so.13", include_bytes!(concat!(env!("OUT_DIR"), "/libcudart.so.13"))),
];

/// Identifies the file behind a descriptor by st_dev and st_ino.
pub type Identity = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub directory: PathBuf,
}

pub struct Record {
    path: PathBuf,
    /// True for an exported dma-buf. Its file gets shared locks, because it can be opened again through /proc/PID/fd,
    /// and each open has a lock of its own.
    is_export: bool,
}

/// An event for [`Session::record`]: a process has loaded the library that gdremu preloads.
pub const LOADED: &str = "loaded";
/// An event for [`Session::record`]: a process has launched a GPU kernel that gdremu does not run.
pub const REFUSED_KERNEL: &str = "refused";

impl Session {
    pub fn create() -> io::Result<Session> {
        let session = Session { directory: nix::unistd::mkdtemp(&std::env::temp_dir().join("gdremu-XXXXXX"))? };
        fs::create_dir(session.devices())?;
        fs::create_dir(session.exports())?;
        fs::create_dir(session.libraries())?;
        Ok(session)
    }

    pub fn devices(&self) -> PathBuf {
        self.directory.join("devices")
    }

    fn exports(&self) -> PathBuf {
        self.directory.join("exports")
    }

    /// Returns the session and the file's name from the path of a file that stands for an exported dma-buf. The session
    /// may be that of another gdremu.
    pub fn of_export(path: &Path) -> Option<(Session, &OsStr)> {
        let exports = path.parent()?;
        let directory = exports.parent()?;
        let is_session = exports.ends_with("exports") && directory.file_name()?.as_bytes().starts_with(b"gdremu-");
        if is_session { Some((Session { directory: directory.to_owned() }, path.file_name()?)) } else { None }
    }

    pub fn libraries(&self) -> PathBuf {
        self.directory.join("lib")
    }

    /// Returns the directory with the emulated files, such as `proc/modules` for programs that open `/proc/modules`.
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }

    /// Returns the path of the emulated file that programs get when they open `path`, an absolute path. Makes the
    /// directories above the emulated file.
    pub fn stand_in(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.files().join(path.strip_prefix("/").unwrap_or(path));
        fs::create_dir_all(place.parent().unwrap_or(&self.directory))?;
        Ok(place)
    }

    /// Returns the path of the library or of a link to it. The path has no blanks and colons, because the dynamic
    /// loader splits `LD_PRELOAD` at these.
    pub fn preloadable(&self, library: &Path) -> io::Result<PathBuf> {
        if !library.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
            return Ok(library.to_owned());
        }
        let link = self.directory.join("preloaded.so");
        symlink(library, &link)?;
        Ok(link)
    }

    /// Makes links to gdremu's library that have the names of NVIDIA's libraries, so that the dynamic loader finds
    /// gdremu's library by these names.
    pub fn install_stand_in(&self, library: &Path) -> io::Result<()> {
        let names = ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1"];
        for name in names {
            symlink(library, self.libraries().join(name))?;
        }
        for (name, empty) in CUDA_RUNTIMES {
            fs::write(self.libraries().join(name), empty)?;
        }
        // Some programs load the CUDA runtime by this unversioned name. All versions have the same functions here.
        symlink("libcudart.so.13", self.libraries().join("libcudart.so"))
    }

    pub fn open_device(&self, read: bool, write: bool) -> io::Result<(Record, File)> {
        new_record(Record { path: self.devices(), is_export: false }, read, write, 0)
    }

    /// Makes the file that stands for an exported dma-buf of `len` bytes, and a locked descriptor of this file.
    pub fn open_export(&self, len: u64) -> io::Result<(Record, File)> {
        new_record(Record { path: self.exports(), is_export: true }, true, true, len)
    }

    pub fn export(&self, name: &OsStr) -> Record {
        Record { path: self.exports().join(name), is_export: true }
    }

    /// Returns the number of pins, in all processes, that still hold memory. Programs read it from
    /// /proc/driver/gdrdrv/nv_get_pages_refcount.
    pub fn refcount(&self) -> u64 {
        self.records().iter().map(|record| if record.is_open() { record.pins() } else { 0 }).sum()
    }

    /// Returns a line of text for each opened `/dev/gdrdrv` through which memory was still pinned when the last
    /// process that had it open ended.
    pub fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        for record in self.records() {
            if record.pins() > 0 && !record.is_open() {
                leaks.extend(record.leak());
            }
        }
        leaks
    }

    /// Records that an event happened in a process. [`Session::has`] reports it.
    pub fn record(&self, event: &str) {
        // This makes a directory, because making a file needs a descriptor, and the program may have none left.
        // An error is ignored, because the directory may exist already.
        let _ = fs::create_dir(self.directory.join(event));
    }

    pub fn has(&self, event: &str) -> bool {
        self.directory.join(event).exists()
    }

    fn records(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(self.devices()) else {
            return Vec::new();
        };
        let mut records: Vec<_> =
            entries.flatten().map(|entry| Record { path: entry.path(), is_export: false }).collect();
        records.sort_by(|a, b| a.path.cmp(&b.path));
        records
    }
}

impl Record {
    /// Returns the device number and the inode number of the file. fstat returns the same for the program's descriptor.
    pub fn identity(&self) -> io::Result<Identity> {
        fs::metadata(&self.path).map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// Returns whether any process still has the device or dma-buf open or mapped. Such a process has the file locked.
    pub fn is_open(&self) -> bool {
        match File::open(&self.path) {
            Ok(file) if self.is_export => file.try_lock().is_err(),
            Ok(file) => file.try_lock_shared().is_err(),
            // If this process has no descriptor left, the device or dma-buf counts as open, so that no memory is freed
            // that another process may still use.
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    pub fn owner(&self) -> Option<&str> {
        self.name().to_str()?.split('.').next()
    }

    pub fn set_pins(&self, pins: u64) {
        // truncate works even if the program has no descriptor left. An error is ignored: if the file is gone, nothing
        // reads its size.
        let _ = nix::unistd::truncate(&self.path, i64::try_from(pins).unwrap_or(i64::MAX));
    }

    pub fn remove(&self) {
        // An error is ignored: if the session's directory was removed, this file was removed with it.
        let _ = fs::remove_file(&self.path);
    }

    fn pins(&self) -> u64 {
        match fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        }
    }

    fn leak(&self) -> Option<String> {
        let pid = self.owner()?;
        let program = self.name().to_str()?.splitn(3, '.').nth(2)?;
        Some(format!("{program} ({pid}) ended with {} pinned", self.pins()))
    }
}

/// Makes a file of `len` bytes that stands for an open device or an exported dma-buf, in the directory `place.path`.
/// Returns the record with the path of the file, and a locked descriptor of the file.
fn new_record(place: Record, read: bool, write: bool, len: u64) -> io::Result<(Record, File)> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let program = program.trim().replace('/', "_");
    let mut options = OpenOptions::new();
    // std's `create_new` would set these flags, too, but refuses to open a file for reading only.
    options.read(read).write(write).custom_flags(libc::O_CREAT | libc::O_EXCL);
    let (record, file) = loop {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = place.path.join(format!("{pid}.{serial}.{program}"));
        match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => break result.map(|file| (Record { path, ..place }, file))?,
        }
    };
    if let Err(error) = prepare(&file, &record, len) {
        record.remove();
        return Err(error);
    }
    Ok((record, file))
}

fn prepare(file: &File, record: &Record, len: u64) -> io::Result<()> {
    if len > 0 {
        file.set_len(len)?;
    }
    if record.is_export { file.lock_shared() } else { file.lock() }
}
