//! The socket to the daemon: which datagrams it accepts, and how it reaches a daemon that starts later.

use super::wire;
use crate::os::descriptor::CheckedDescriptor;
use crate::os::{datagram, fork};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// A bound socket that is always connected: to the daemon, or to itself if there is none. It never blocks.
///
/// The kernel refuses datagrams to a connected socket except from its peer. So only the process that has the daemon's name can
/// send requests, and its user must be trusted.
#[derive(Debug)]
pub(super) struct Fabric {
    socket: CheckedDescriptor<UnixDatagram>,
    own: SocketAddr,
    daemon: SocketAddr,
    /// The daemon's name, as the kernel reports it for a sender.
    daemon_name: Vec<u8>,
    /// The file of the socket, if it has one.
    file: Option<SocketFile>,
    trusted: Option<u32>,
    is_connected: bool,
    buffer: Box<[u8]>,
}

/// The file of a bound socket, which is removed with it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have a file of that name later.
    id: (u64, u64),
    /// The fork generation that created it: a forked child does not remove it.
    born: u64,
}

/// A valid answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DaemonReply {
    /// Empty if there is nothing to do.
    pub(super) text: String,
    /// The sending process, as the kernel reports it.
    pub(super) sender: i32,
}

/// Why a datagram is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    /// It is from an untrusted user.
    User(Option<u32>),
    /// It is not from the daemon's socket, or malformed.
    Other(String),
}

/// The daemon's name.
const DAEMON: &str = "dynolog";
/// How the names of clients begin.
const CLIENT: &str = "dynoconfigclient";
/// The longest path of a socket.
const PATH_MAX: usize = 107;
/// The most entries of the folder that are searched for leftover sockets.
const LEFTOVERS_MAX: usize = 10_000;

impl Fabric {
    /// Binds a socket under a unique name: abstract, or in `folder`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if that folder can never hold a socket.
    pub(super) fn open(folder: Option<&Path>, trusted: Option<u32>) -> io::Result<Fabric> {
        let random = RandomState::new();
        let unique = [0, 1].map(|half| random.hash_one((half, std::process::id())));
        let own_name = format!("{CLIENT}{}-{:016x}{:016x}", std::process::id(), unique[0], unique[1]);
        let (daemon, daemon_name) = socket_address(folder, DAEMON)?;
        let own = socket_address(folder, &own_name)?.0;
        folder.into_iter().for_each(remove_leftovers);
        let socket = UnixDatagram::bind_addr(&own)?;
        socket.connect_addr(&own)?;
        socket.set_nonblocking(true)?;
        datagram::enable_sender_credentials(&socket)?;
        // The daemon runs as root or as this user, unless another user is trusted.
        let mode = if trusted.is_some() { 0o666 } else { 0o600 };
        let file = folder.map(|folder| SocketFile::from_path(folder.join(own_name), mode)).transpose()?;
        let buffer = vec![0; wire::LONGEST].into_boxed_slice();
        Ok(Fabric {
            socket: CheckedDescriptor::new(socket),
            own,
            daemon,
            daemon_name,
            file,
            trusted,
            is_connected: false,
            buffer,
        })
    }

    /// Returns the socket's descriptor; `None` if the program has closed it.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.socket.get().ok().map(AsRawFd::as_raw_fd)
    }

    /// Returns whether answers can still arrive: not after the socket was closed, or its file or folder was removed.
    pub(super) fn is_reachable(&self) -> bool {
        self.socket.get().is_ok() && self.file.as_ref().is_none_or(SocketFile::is_there)
    }

    /// Sends a datagram to the daemon, after connecting to it if necessary.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the daemon's receive queue is full; otherwise, there is no daemon.
    pub(super) fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        // A daemon that has ended may have restarted under its name.
        self.try_send(datagram).or_else(|error| match error.kind() {
            ErrorKind::WouldBlock => Err(error),
            _ => self.try_send(datagram),
        })
    }

    fn try_send(&mut self, datagram: &[u8]) -> io::Result<()> {
        if !self.is_connected {
            self.connect()?;
        }
        let sent = self.socket.get().and_then(|socket| socket.send(datagram));
        if sent.as_ref().is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
            self.disconnect();
        }
        sent.map(drop)
    }

    /// Connects to the process that has the daemon's name now.
    pub(super) fn connect(&mut self) -> io::Result<()> {
        let connected = self.socket.get().and_then(|socket| socket.connect_addr(&self.daemon));
        self.is_connected = connected.is_ok();
        if !self.is_connected {
            self.disconnect();
        }
        connected
    }

    /// Refuses all datagrams until it is connected again, and drops those that have arrived.
    fn disconnect(&mut self) {
        self.is_connected = false;
        // This fails if the socket's file is gone; then no process can send to it either.
        let _ = self.socket.get().and_then(|socket| socket.connect_addr(&self.own));
    }

    /// Receives the next datagram, if there is one.
    pub(super) fn receive_reply(&mut self) -> Option<Result<DaemonReply, DropReason>> {
        let arrived = datagram::receive(self.socket.get().ok()?, &mut self.buffer).ok()?;
        let bytes = self.buffer.get(..arrived.length).unwrap_or_default();
        Some(self.check_datagram(bytes, &arrived))
    }

    fn check_datagram(&self, bytes: &[u8], arrived: &datagram::Datagram) -> Result<DaemonReply, DropReason> {
        if arrived.name != self.daemon_name {
            let name = String::from_utf8_lossy(&arrived.name);
            let why = format!("it is from the socket \"{}\", which is not the daemon's", name.escape_debug());
            return Err(DropReason::Other(why));
        }
        let is_trusted = |user: u32| user == 0 || user == datagram::effective_user() || Some(user) == self.trusted;
        let Some((sender, _)) = arrived.sender.filter(|(_, user)| is_trusted(*user)) else {
            return Err(DropReason::User(arrived.sender.map(|(_, user)| user)));
        };
        if arrived.is_truncated {
            return Err(DropReason::Other(format!("it has more than {} bytes", bytes.len())));
        }
        let text = wire::decode_answer(bytes).map_err(DropReason::Other)?;
        Ok(DaemonReply { text: text.to_owned(), sender })
    }
}

impl SocketFile {
    fn from_path(path: PathBuf, mode: u32) -> io::Result<SocketFile> {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        let id = file_id(&path)?;
        Ok(SocketFile { path, id, born: fork::generation() })
    }

    fn is_there(&self) -> bool {
        file_id(&self.path).is_ok_and(|id| id == self.id)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.born == fork::generation() && self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

/// Removes the sockets that killed clients of this user have left.
fn remove_leftovers(folder: &Path) {
    let Ok(probe) = UnixDatagram::unbound() else { return };
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(LEFTOVERS_MAX).flatten();
    for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(CLIENT.as_bytes())) {
        let is_ours =
            |about: std::fs::Metadata| about.file_type().is_socket() && about.uid() == datagram::effective_user();
        let is_dead = || probe.connect(entry.path()).is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused);
        if entry.metadata().is_ok_and(is_ours) && is_dead() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns the address of a name, and the name as the kernel reports it, with a zero byte at its end.
fn socket_address(folder: Option<&Path>, name: &str) -> io::Result<(SocketAddr, Vec<u8>)> {
    let Some(folder) = folder else {
        let name = format!("{name}\0");
        let told = [b"\0", name.as_bytes()].concat();
        return Ok((SocketAddr::from_abstract_name(name)?, told));
    };
    // The daemon exits if a name does not begin with its own folder, so the path cannot be made absolute here.
    if !folder.is_absolute() {
        let why =
            format!("KINETO_IPC_SOCKET_DIR must be an absolute path, also for the daemon, and is {}", folder.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    // Joined as the daemon does, even if the folder ends with a slash.
    let mut path = folder.as_os_str().to_owned();
    path.push("/");
    path.push(name);
    if path.len() > PATH_MAX {
        let why =
            format!("the socket's path has {} bytes, and {PATH_MAX} are allowed; use a shorter folder", path.len());
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    let told = [path.as_bytes(), b"\0"].concat();
    Ok((SocketAddr::from_pathname(path)?, told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A daemon in its own folder, and a socket connected to it.
    fn pair() -> (tempfile::TempDir, UnixDatagram, Fabric) {
        let folder = tempfile::tempdir().unwrap();
        let daemon = UnixDatagram::bind(folder.path().join(DAEMON)).unwrap();
        let mut fabric = Fabric::open(Some(folder.path()), None).unwrap();
        fabric.send(b"hello").unwrap();
        (folder, daemon, fabric)
    }

    fn answer(text: &str) -> Vec<u8> {
        let mut bytes = (text.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(b"req");
        bytes.resize(40, 0);
        bytes.extend(text.as_bytes());
        bytes
    }

    fn received(fabric: &mut Fabric) -> Option<Result<DaemonReply, DropReason>> {
        datagram::wait_readable(fabric.descriptor().as_slice(), Duration::from_millis(200));
        fabric.receive_reply()
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn relative_folder_is_refused() {
        let error = Fabric::open(Some(Path::new("sockets")), None).unwrap_err().to_string();
        assert!(
            error.contains("KINETO_IPC_SOCKET_DIR must be an absolute path") && error.contains("sockets"),
            "{error}"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn answers_of_the_daemon_are_taken_and_others_dropped() {
        let (_folder, daemon, mut fabric) = pair();
        let mut buffer = [0; 64];
        let (length, client) = daemon.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"hello");
        daemon.send_to_addr(b"", &client).unwrap();
        daemon.send_to_addr(&answer("A=1")[..42], &client).unwrap();
        daemon.send_to_addr(&answer("A=1"), &client).unwrap();
        assert_eq!(
            received(&mut fabric),
            Some(Err(DropReason::Other("it has 0 bytes, fewer than a header".to_owned())))
        );
        let length = "it announces 3 bytes and has 2".to_owned();
        assert_eq!(received(&mut fabric), Some(Err(DropReason::Other(length))));
        let sender = i32::try_from(std::process::id()).unwrap();
        assert_eq!(received(&mut fabric), Some(Ok(DaemonReply { text: "A=1".to_owned(), sender })));
        assert_eq!(fabric.receive_reply(), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn kernel_refuses_other_senders_at_all_times() {
        let folder = tempfile::tempdir().unwrap();
        let mallory = UnixDatagram::bind(folder.path().join("mallory")).unwrap();
        let mut fabric = Fabric::open(Some(folder.path()), None).unwrap();
        let client = fabric.file.as_ref().unwrap().path.clone();
        let refused = || mallory.send_to(&answer("A=1"), &client).unwrap_err().kind();
        assert_eq!(refused(), ErrorKind::PermissionDenied, "there is no daemon yet");
        let daemon = UnixDatagram::bind(folder.path().join(DAEMON)).unwrap();
        fabric.send(b"hello").unwrap();
        assert_eq!(refused(), ErrorKind::PermissionDenied, "there is one");
        drop(daemon);
        assert_eq!(refused(), ErrorKind::PermissionDenied, "it has gone");
        assert!(fabric.send(b"hello").is_err());
        assert_eq!(refused(), ErrorKind::PermissionDenied, "that was noticed");
        assert_eq!(fabric.receive_reply(), None);
        drop(fabric);
        assert!(!client.exists());
    }

    // Shows the key KINETO_DAEMON_UID.
    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn only_trusted_users_are_accepted() {
        let (_folder, _daemon, mut fabric) = pair();
        let other = datagram::effective_user() + 7;
        let heard = |fabric: &Fabric, user: Option<u32>| {
            let (bytes, name) = (answer("A=1"), fabric.daemon_name.clone());
            let sender = user.map(|user| (4711, user));
            fabric
                .check_datagram(&bytes, &datagram::Datagram { length: bytes.len(), is_truncated: false, sender, name })
        };
        for user in [0, datagram::effective_user()] {
            assert_eq!(heard(&fabric, Some(user)), Ok(DaemonReply { text: "A=1".to_owned(), sender: 4711 }));
        }
        assert_eq!(heard(&fabric, Some(other)), Err(DropReason::User(Some(other))));
        fabric.trusted = Some(other);
        assert!(heard(&fabric, Some(other)).is_ok() && heard(&fabric, Some(other + 1)).is_err());
        assert_eq!(heard(&fabric, None), Err(DropReason::User(None)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn restarted_daemon_is_found() {
        let (folder, daemon, mut fabric) = pair();
        drop(daemon);
        assert_ne!(fabric.send(b"a").unwrap_err().kind(), ErrorKind::WouldBlock);
        std::fs::remove_file(folder.path().join(DAEMON)).unwrap();
        assert_ne!(fabric.send(b"b").unwrap_err().kind(), ErrorKind::WouldBlock);
        let daemon = UnixDatagram::bind(folder.path().join(DAEMON)).unwrap();
        fabric.send(b"c").unwrap();
        let mut buffer = [0; 8];
        assert_eq!((daemon.recv(&mut buffer).unwrap(), buffer[0]), (1, b'c'));
        // A send never waits for the daemon.
        let full = (0..10_000).find_map(|_| fabric.send(b"d").err());
        assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::WouldBlock));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn abstract_names_end_with_zero_and_long_paths_fail() {
        let (_, told) = socket_address(None, DAEMON).unwrap();
        assert_eq!(told, b"\0dynolog\0");
        let folder = PathBuf::from(format!("/tmp/{}", "x".repeat(100)));
        assert_eq!(Fabric::open(Some(&folder), None).unwrap_err().kind(), ErrorKind::InvalidInput);
        let (one, other) = (Fabric::open(None, None).unwrap(), Fabric::open(None, None).unwrap());
        assert_ne!(one.descriptor(), other.descriptor());
    }
}
