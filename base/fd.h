/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptors: making, passing and closing them; small files; Unix sockets.
 *
 * Trust: the peer of a socket may be hostile. gantry_fd_recv() never leaves a descriptor behind
 * that its caller does not know of.
 * Threads: every function may be called from any thread.
 * Blocking: as the system calls they wrap; EINTR is handled here.
 * Every descriptor made here is close-on-exec.
 */
#ifndef GANTRY_BASE_FD_H
#define GANTRY_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ucred;

/* Most descriptors that one message may carry (the kernel's SCM_MAX_FD). */
#define GANTRY_FD_MSG_MAX 253u

/*
 * Close @fd unless it is negative. Returns -EBADF always, for `fd = gantry_fd_close(fd);`. errno is
 * kept. A failed close() is not reported: on Linux the descriptor is gone either way.
 */
int gantry_fd_close(int fd);

/* The memfd can neither shrink nor grow, and no further seal can be set: safe to map and share. */
#define GANTRY_MEMFD_SEALED 1u

/*
 * A memfd of @bytes zero bytes; @flags is 0 or GANTRY_MEMFD_SEALED. @name is for /proc only.
 * The caller owns *@ret_fd. -EINVAL: unknown flag; -EFBIG: more bytes than a file can have;
 * any other -errno of memfd_create, ftruncate or fcntl.
 */
int gantry_memfd_create(const char *name, uint64_t bytes, unsigned int flags, int *ret_fd);

/*
 * Nobody can change what is in the memfd or how long it is from now on. Linux refuses that (EBUSY) while anybody holds one of its pages, as
 * the system itself does for moments: it is tried for up to two seconds. -EBUSY: it is mapped for writing; -errno of fcntl.
 */
int gantry_memfd_freeze(int fd);

/*
 * 0 when @fd is sealed against shrinking and growing and holds at least @min_bytes, so that no peer
 * can cause a SIGBUS in a mapping of that size. -EPERM: a seal is missing; -ERANGE: too small; -EMEDIUMTYPE: on huge pages, of
 * which the machine may have none when a mapping is touched; other -errno: not a memfd.
 */
int gantry_memfd_check(int fd, uint64_t min_bytes);

/*
 * Send @len bytes and @nfds descriptors (which stay the caller's) as one sendmsg(). @flags are
 * those of sendmsg; MSG_NOSIGNAL is added. On a stream socket fewer bytes than @len may go; the
 * descriptors go with the first byte, so send the rest without them. @len must not be 0 when there
 * are descriptors. Returns the bytes sent, or -errno (-EAGAIN: full; -EPIPE, -ECONNRESET: the peer
 * is gone; -EINVAL: @nfds too large, or nothing to send them with).
 */
ssize_t gantry_fd_send(int sock, const void *buf, size_t len, const int *fds, unsigned int nfds,
		       int flags);

/*
 * Receive one message of up to @cap bytes and up to @max_fds descriptors with one recvmsg().
 * The caller owns fds[0 .. *@ret_nfds). Descriptors beyond @max_fds are closed here and not
 * counted.
 * @ret_nfds may be NULL when @max_fds is 0. @flags are those of recvmsg; MSG_CMSG_CLOEXEC is added.
 * Returns the bytes received, 0 at the end of the stream (also where the peer ended without having read all; what it had said comes
 * first), or -errno:
 * -EMSGSIZE: the message was longer than @cap (seqpacket, datagram): drop the peer;
 * -EMFILE: the kernel could not hand over every descriptor; -EAGAIN: nothing there.
 * On any failure every received descriptor is closed and nothing is written to @fds or *@ret_nfds.
 */
ssize_t gantry_fd_recv(int sock, void *buf, size_t cap, int *fds, unsigned int max_fds,
		       unsigned int *ret_nfds, int flags);

/* Set or clear O_NONBLOCK. 0 or -errno. */
int gantry_fd_nonblock(int fd, bool on);

/* Set or clear FD_CLOEXEC; cleared only between fork() and exec(). 0 or -errno. */
int gantry_fd_cloexec(int fd, bool on);

/* Who connected (SO_PEERCRED: as of connect() or socketpair()). 0 or -errno. */
int gantry_fd_peer_cred(int sock, struct ucred *ret_cred);

/*
 * Listen on a Unix socket at @path with permission bits @mode. @type is SOCK_STREAM or
 * SOCK_SEQPACKET, SOCK_NONBLOCK may be added. A leading '@' means the abstract namespace (@mode is
 * then ignored). A socket file that nobody listens on is replaced. -EADDRINUSE: a live listener has
 * it, or the path is something other than a socket; -ENAMETOOLONG; other -errno. The caller owns
 * *@ret_fd and unlinks @path.
 */
int gantry_unix_listen(const char *path, int type, mode_t mode, int *ret_fd);

/*
 * Connect to the Unix socket at @path. @type as above. -ENAMETOOLONG; -ENOENT or -ECONNREFUSED:
 * nobody listens; -EAGAIN: non-blocking and the backlog is full; other -errno. The caller owns
 * *@ret_fd.
 */
int gantry_unix_connect(const char *path, int type, int *ret_fd);

/* Write all of @len bytes, across partial writes. For blocking descriptors. 0 or -errno. */
int gantry_write_all(int fd, const void *buf, size_t len);
/* The same at @off of a file, whose own position stays. */
int gantry_write_all_at(int fd, const void *buf, size_t len, uint64_t off);

/* Read exactly @len bytes. -ENODATA: the end came first. For blocking descriptors. 0 or -errno. */
int gantry_read_all(int fd, void *buf, size_t len);

/*
 * The contents of the file at @path, which may be in /proc. *@ret_data is malloc'd, the caller's,
 * and has a NUL after its last byte that *@ret_len (may be NULL) does not count. -EFBIG: more than
 * @max_bytes; -ENOMEM; other -errno.
 */
int gantry_file_read(const char *path, size_t max_bytes, char **ret_data, size_t *ret_len);

/*
 * Replace the file at @path by @len bytes with permission bits @mode, so that a reader, or a
 * machine that loses power, sees the old contents or the new, never a mixture: temporary file in
 * the same directory, fsync, rename, fsync of the directory. 0 or -errno; on failure the old file
 * stands and the temporary one is gone. (Only when syncing the directory fails may the new one
 * stand already.)
 */
int gantry_file_replace(const char *path, const void *data, size_t len, mode_t mode);

/*
 * A number for the file that @fd is, and for what was last written to it; another file, or another content, has
 * another, as good as certainly. @fd may be O_PATH. 0: not known.
 */
uint64_t gantry_file_identity(int fd);

#ifdef __cplusplus
}
#endif

#endif
