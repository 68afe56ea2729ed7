//! HawkEye's own files. They are written for root alone, and checked when they are read.
//!
//! A file may be truncated, of another version, or put there by another user. Each reader limits
//! its size, checks its owner and its mode, and follows no symbolic link. An unusable file is set
//! aside, so that nothing is lost and the start is not blocked. A file that cannot be read now may
//! be good, and stays.

use crate::error::LinuxError;
use nix::unistd::geteuid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Mode of every file that only HawkEye reads back.
const PRIVATE: u32 = 0o600;
/// Names to try for a file that is set aside.
const MOST_ASIDE: u32 = 1000;

/// Why a file is not used, as a clause that follows its name.
#[derive(Debug, Error)]
pub(crate) enum UnusableFileReason {
    #[error("cannot be read ({0})")]
    Io(#[from] io::Error),
    #[error("is not a regular file")]
    NotAFile,
    /// It may lead anywhere.
    #[error("is a symbolic link")]
    Link,
    #[error("belongs to user {0}, so its contents are not trusted")]
    Owner(u32),
    #[error("can be written by other users (mode {0:o})")]
    Writable(u32),
    /// It is larger than anything that HawkEye writes there.
    #[error("is longer than {0} bytes")]
    TooLong(u64),
    #[error("is damaged ({0})")]
    Damaged(#[from] serde_json::Error),
    #[error("has version {found}, and this program knows version {known}")]
    Version { found: u32, known: u32 },
    /// It contains values that HawkEye never writes.
    #[error("is damaged ({0})")]
    Impossible(String),
    #[error("names {}, which HawkEye never changes, or a value that this setting cannot have", .0.display())]
    NotASetting(PathBuf),
}

/// Reads and parses a file of at most `most_bytes` that root or this user has written. `None` if
/// the file does not exist.
pub(crate) fn read_trusted_file<T>(
    path: &Path,
    most_bytes: u64,
    parse: impl FnOnce(&[u8]) -> Result<T, UnusableFileReason>,
) -> Result<Option<T>, UnusableFileReason> {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe in its place must not block the start.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(UnusableFileReason::Link);
        }
        // A socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            return Err(UnusableFileReason::NotAFile);
        }
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(UnusableFileReason::NotAFile);
    }
    check_only_trusted_users_can_write(&found)?;
    let mut text = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut text)?;
    if text.len() as u64 > most_bytes {
        return Err(UnusableFileReason::TooLong(most_bytes));
    }
    parse(&text).map(Some)
}

/// Parses JSON of the version `known`, which it names in its field `version`.
pub(crate) fn parse_json_of_version<T: DeserializeOwned>(
    text: &[u8],
    known: u32,
) -> Result<T, UnusableFileReason> {
    #[derive(Deserialize)]
    struct VersionField {
        version: u32,
    }
    let VersionField { version: found } = serde_json::from_slice(text)?;
    if found != known {
        return Err(UnusableFileReason::Version { found, known });
    }
    Ok(serde_json::from_slice(text)?)
}

/// As [`read_trusted_file`]. An unusable file is set aside, and one that cannot be read stays. Both
/// are logged and count as none. `what` describes what the file holds.
pub(crate) fn read_or_set_aside<T>(
    what: &str,
    path: &Path,
    most_bytes: u64,
    parse: impl FnOnce(&[u8]) -> Result<T, UnusableFileReason>,
) -> Option<T> {
    match read_trusted_file(path, most_bytes, parse) {
        Ok(found) => found,
        Err(why @ UnusableFileReason::Io(_)) => {
            tracing::warn!("{what} not used: {} {why}", path.display());
            None
        }
        Err(why) => {
            log_and_set_aside(what, path, &why);
            None
        }
    }
}

/// Sets a file aside that is unusable for this reason, and logs it.
pub(crate) fn log_and_set_aside(what: &str, path: &Path, why: &UnusableFileReason) {
    let path_shown = path.display();
    match set_damaged_file_aside(path) {
        Ok(aside) => {
            tracing::warn!("{what} not used: {path_shown} {why}; it is kept as {}", aside.display())
        }
        Err(error) => {
            tracing::warn!("{what} not used: {path_shown} {why}; it cannot be renamed ({error})")
        }
    }
}

/// Checks that only root and this user can change the file or folder that this describes.
pub(crate) fn check_only_trusted_users_can_write(
    found: &Metadata,
) -> Result<(), UnusableFileReason> {
    if !is_trusted_uid(found.uid()) {
        return Err(UnusableFileReason::Owner(found.uid()));
    }
    let by_group = found.mode() & 0o020 != 0 && found.gid() != 0;
    if by_group || found.mode() & 0o002 != 0 {
        return Err(UnusableFileReason::Writable(found.mode() & 0o7777));
    }
    Ok(())
}

/// Whether this is root or the user that runs this program.
pub fn is_trusted_uid(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Creates a file for this user alone, regardless of the umask. It removes an existing file.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    if let Err(error) = fs::remove_file(path) {
        if error.kind() != io::ErrorKind::NotFound {
            set_damaged_file_aside(path)?;
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(PRIVATE);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Replaces a file, which is on disk when this returns. A crash leaves either the old contents or
/// the new.
///
/// # Errors
/// The file cannot be written; the old contents are still there.
pub fn replace_file_atomically(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path_with_suffix(path, ".new");
    let mut file = create_private_file(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Renames an unusable file to `NAME.damaged-1`, or to the next free number.
pub fn set_damaged_file_aside(path: &Path) -> io::Result<PathBuf> {
    let free = (1..MOST_ASIDE)
        .map(|number| path_with_suffix(path, &format!(".damaged-{number}")))
        .find(|aside| fs::symlink_metadata(aside).is_err());
    let aside = free.unwrap_or_else(|| path_with_suffix(path, ".damaged-1"));
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Creates a folder and its parents with this mode, regardless of the umask. An existing folder
/// keeps its mode. It must not be writable by other users, which could replace its files.
pub fn create_trusted_folder(path: &Path, mode: u32) -> crate::error::Result<()> {
    let made = create_missing_folder(path, mode).and_then(|()| fs::metadata(path));
    let found = made.map_err(LinuxError::wrap_io_error("creating", path))?;
    check_only_trusted_users_can_write(&found)
        .map_err(|why| LinuxError::UnsafeFolder { path: path.to_owned(), why: why.to_string() })
}

fn create_missing_folder(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_missing_folder(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.and_then(|()| {
            let mut options = OpenOptions::new();
            // A parent may belong to another user, which can put a link in its place.
            options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
            options.open(path)?.set_permissions(Permissions::from_mode(mode))
        }),
    }
}

/// A path with this at the end of its last name, such as `journal.1` beside `journal`.
pub fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::{TestFolder, set_mode};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn read(path: &Path, most_bytes: u64) -> Result<Option<Vec<u8>>, UnusableFileReason> {
        read_trusted_file(path, most_bytes, |text| Ok(text.to_vec()))
    }

    fn refused(path: &Path) -> String {
        read(path, 100).expect_err("an untrusted file is refused").to_string()
    }

    #[test]
    fn only_files_private_to_root_or_this_user_are_read() {
        let folder = TestFolder::new("own-files");
        let path = folder.file("a", "text");
        let found = read(&path, 4).expect("the file can be read");
        assert_eq!(found.as_deref(), Some(&b"text"[..]));
        assert!(matches!(read(&path, 3), Err(UnusableFileReason::TooLong(3))));
        let missing = read(&folder.0.join("none"), 9);
        assert!(missing.is_ok_and(|text| text.is_none()));
        set_mode(&path, 0o666);
        assert!(refused(&path).contains("mode 666"));
        let link = folder.0.join("link");
        symlink(&path, &link).expect("the link can be created");
        assert!(refused(&link).contains("symbolic link"));
        assert!(refused(&folder.0).contains("not a regular file"));
        let socket = folder.0.join("socket");
        let _listener = UnixListener::bind(&socket).expect("the socket can be created");
        assert!(refused(&socket).contains("not a regular file"));
        let pipe = folder.0.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).expect("the pipe can be created");
        assert!(refused(&pipe).contains("not a regular file"));
        if geteuid().is_root() {
            let of_nobody = folder.file("unprivileged", "text");
            std::os::unix::fs::chown(&of_nobody, Some(65534), None)
                .expect("root can change the owner");
            assert!(refused(&of_nobody).contains("user 65534"));
        }
    }

    #[test]
    fn a_replaced_file_is_private_and_follows_no_link() {
        let folder = TestFolder::new("own-files-new");
        let (path, other) = (folder.0.join("a"), folder.file("other", "theirs"));
        symlink(&other, folder.0.join("a.new")).expect("the link can be created");
        replace_file_atomically(&path, b"ours").expect("the file can be replaced");
        let texts = [&other, &path].map(|file| fs::read_to_string(file).unwrap_or_default());
        assert_eq!(texts, ["theirs", "ours"]);
        let mode = fs::metadata(&path).expect("the file exists").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_new_folder_has_its_mode_whatever_the_umask_and_another_keeps_its_own() {
        let folder = TestFolder::new("own-files-folder");
        let (outer, inner) = (folder.0.join("outer"), folder.0.join("outer/inner"));
        // A umask of 022 takes bits of this mode away.
        create_missing_folder(&inner, 0o777).expect("the folders can be created");
        let mode = |path: &Path| fs::metadata(path).expect("the folder exists").mode() & 0o777;
        assert_eq!([mode(&outer), mode(&inner)], [0o777, 0o777]);
        set_mode(&inner, 0o700);
        create_trusted_folder(&inner, 0o755).expect("the folder is there");
        assert_eq!(mode(&inner), 0o700);
    }

    #[test]
    fn setting_a_file_aside_replaces_no_other_file() {
        let folder = TestFolder::new("own-files-aside");
        for text in ["first", "second"] {
            let path = folder.file("a", text);
            let aside = set_damaged_file_aside(&path).expect("the file can be renamed");
            let kept = fs::read_to_string(aside).expect("the file can be read");
            assert_eq!(kept, text);
        }
        assert!(folder.0.join("a.damaged-2").exists());
    }

    #[test]
    fn a_file_that_cannot_be_read_now_stays_where_it_is() {
        let folder = TestFolder::new("own-files-io");
        let path = folder.file("a", "text");
        let no_memory = |_: &[u8]| -> Result<(), UnusableFileReason> {
            Err(io::Error::from_raw_os_error(libc::ENOMEM).into())
        };
        assert_eq!(read_or_set_aside("it is", &path, 9, no_memory), None);
        assert_eq!(fs::read_to_string(&path).expect("the file is still there"), "text");
    }
}
