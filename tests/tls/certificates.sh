# Creates certificates in this folder: a CA, and signed by it `good` (localhost and 127.0.0.1), `other` (another name),
# `old` (expired) and `client`; and `self`, which is self-signed. Needs only openssl.
set -e
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; chmod 600 "$1.key"; }
key ca; openssl req -x509 -new -key ca.key -subj /CN=ca -days 30 -out ca.pem
key self; openssl req -new -key self.key -subj /CN=localhost -out self.csr; printf 'subjectAltName=DNS:localhost\n' >self.ext
openssl x509 -req -in self.csr -signkey self.key -extfile self.ext -days 30 -out self.pem
signed() { key "$1"; openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    printf 'subjectAltName=%s\n' "$2" >"$1.ext"; shift 2
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -extfile "$1.ext" -out "$1.pem" "${@:2}"; }
signed good DNS:localhost,IP:127.0.0.1 good -days 30
signed other DNS:elsewhere other -days 30
key old; openssl req -new -key old.key -subj /CN=old -out old.csr; printf 'subjectAltName=DNS:localhost\n' >old.ext
printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n' >ca.cnf
touch index; echo 77 >serial
openssl ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key -in old.csr -extfile old.ext -notext -out old.pem \
    -startdate 20200101000000Z -enddate 20210101000000Z
signed client DNS:client client -days 30
