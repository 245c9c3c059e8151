"""TLS in front of a plain server: relay.py CERT KEY PORT prints its own port. Uses Python's ssl module (OpenSSL)."""
import socket, ssl, sys, threading

cert, key, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
listener = socket.create_server(("127.0.0.1", int(sys.argv[4]) if len(sys.argv) > 4 else 0))
print(listener.getsockname()[1], flush=True)


def copy(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for end in (one, other):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(plain):
    try:
        inside = context.wrap_socket(plain, server_side=True)
        outside = socket.create_connection(("127.0.0.1", port))
    except OSError:
        return plain.close()
    threading.Thread(target=copy, args=(inside, outside), daemon=True).start()
    copy(outside, inside)


while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
