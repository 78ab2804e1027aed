//! Messages over Unix sockets. Each message carries a descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

const MAX_MESSAGE: usize = 128 << 10;

pub(crate) fn send(socket: BorrowedFd<'_>, message: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    if message.len() > MAX_MESSAGE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let descriptors = [descriptor.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(message)], &control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Waits for the next message. Fails if the message has no descriptor, and at the end of the connection.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, OwnedFd)> {
    let mut message = vec![0; MAX_MESSAGE];
    let mut control = cmsg_space!([i32; 1]);
    let mut buffers = [IoSliceMut::new(&mut message)];
    let socket = socket.as_fd().as_raw_fd();
    let received = recvmsg::<()>(socket, &mut buffers, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let len = received.bytes;
    let mut descriptor = None;
    for control in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for received in descriptors {
                // SAFETY: Linux has made this descriptor for the message, so no other code has it.
                descriptor = Some(unsafe { OwnedFd::from_raw_fd(received) });
            }
        }
    }
    message.truncate(len);
    Ok((message, descriptor.ok_or(io::ErrorKind::UnexpectedEof)?))
}
