use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

/// What a server sends to a client with this request. After the request the client ends the
/// stream or waits.
pub fn exchange(request: &[u8], ends: bool, serve: impl FnOnce(UnixStream)) -> Vec<u8> {
    let (mut client, server) = UnixStream::pair().expect("a socket pair");
    let (mut sender, request) = (client.try_clone().expect("a second handle"), request.to_vec());
    let sender = thread::spawn(move || {
        // The server may close the connection before the end.
        let _ = sender.write_all(&request);
        let _ = ends.then(|| sender.shutdown(Shutdown::Write));
    });
    serve(server);
    sender.join().expect("the thread ends");
    let mut answer = Vec::new();
    // Closing with unread data resets the connection.
    let _ = client.read_to_end(&mut answer);
    answer
}
