//! Broker side of SASL: PLAIN and SCRAM-SHA-256 (RFC 5802, 7677). The hashes are implemented here after FIPS 180-4 and
//! RFC 2104, independently of the client.

use super::{In, text};

/// SASL mechanisms.
pub(crate) const PLAIN: &str = "PLAIN";
pub(crate) const SCRAM: &str = "SCRAM-SHA-256";

/// SASL mechanism, user and password.
pub(crate) type Login = (&'static str, String, String);

/// Iterations of the password hash.
const ROUNDS: u32 = 4096;
const SALT: &[u8] = b"salt of a broker";

/// State of a SCRAM exchange.
#[derive(Default)]
pub(crate) struct Scram {
    first: String,
    answer: String,
}

impl Scram {
    /// Returns the answer, and `true` once the password is proved; `None` for a wrong proof or an invalid message.
    pub(crate) fn answer_to(&mut self, message: &str, user: &str, password: &str) -> Option<(String, bool)> {
        if self.first.is_empty() {
            let bare = message.strip_prefix("n,,")?;
            let nonce = bare.strip_prefix("n=")?.strip_prefix(user)?.strip_prefix(",r=")?;
            self.answer = format!("r={nonce}and-ours,s={},i={ROUNDS}", base64(SALT));
            self.first = bare.to_owned();
            return Some((self.answer.clone(), false));
        }
        let (bare, proof) = message.split_once(",p=")?;
        let nonce = self.answer.split(',').next()?;
        if bare != format!("c={},{nonce}", base64(b"n,,")) {
            return None;
        }
        let signed = format!("{},{},{bare}", self.first, self.answer);
        let salted = salted(password.as_bytes());
        let client = hmac(&salted, b"Client Key");
        let mut wanted = hmac(&sha256(&client), signed.as_bytes());
        wanted.iter_mut().zip(client).for_each(|(byte, key)| *byte ^= key);
        let own = hmac(&hmac(&salted, b"Server Key"), signed.as_bytes());
        (proof == base64(&wanted)).then(|| (format!("v={}", base64(&own)), true))
    }
}

/// Handles a SASL request; returns the answer, and whether the login succeeded.
pub(crate) fn sign(key: i16, mut body: In<'_>, login: Option<&Login>, scram: &mut Scram) -> (Vec<u8>, bool) {
    let (mechanism, user, password) = login.cloned().unwrap_or_default();
    if key == 17 {
        let error: i16 = if body.text().as_deref() == Some(mechanism) { 0 } else { 33 };
        return ([&error.to_be_bytes()[..], &1i32.to_be_bytes(), &text(mechanism)].concat(), false);
    }
    let length = body.number(4) as usize;
    let message = body.bytes(length);
    let reply = match mechanism {
        SCRAM => scram.answer_to(&String::from_utf8_lossy(message), &user, &password),
        _ => (message == format!("\0{user}\0{password}").as_bytes()).then(|| (String::new(), true)),
    };
    let error: i16 = if reply.is_some() { 0 } else { 58 };
    let (reply, is_good) = reply.unwrap_or_default();
    let all = [&error.to_be_bytes()[..], &text("so it is"), &(reply.len() as i32).to_be_bytes(), reply.as_bytes()];
    (all.concat(), is_good)
}

/// First block of PBKDF2.
fn salted(password: &[u8]) -> [u8; 32] {
    let mut last = hmac(password, &[SALT, &[0, 0, 0, 1]].concat());
    let mut all = last;
    for _ in 1..ROUNDS {
        last = hmac(password, &last);
        all.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
    }
    all
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    let hashed = sha256(key);
    let key = if key.len() > 64 { &hashed[..] } else { key };
    block[..key.len()].copy_from_slice(key);
    let padded = |with: u8| block.map(|byte| byte ^ with).to_vec();
    let inner = sha256(&[&padded(0x36), message].concat());
    sha256(&[&padded(0x5c), &inner[..]].concat())
}

fn sha256(message: &[u8]) -> [u8; 32] {
    // First 32 fractional bits of roots of primes: square roots for the state, cube roots for the rounds.
    let primes: Vec<u32> = (2..312).filter(|number| (2..*number).all(|by| number % by != 0)).collect();
    let root = |prime: u32, power: f64| (f64::from(prime).powf(power).fract() * 4_294_967_296.0) as u32;
    let mut state: Vec<u32> = primes[..8].iter().map(|prime| root(*prime, 0.5)).collect();
    let rounds: Vec<u32> = primes[..64].iter().map(|prime| root(*prime, 1.0 / 3.0)).collect();
    let mut padded = [message, &[0x80]].concat();
    padded.resize((padded.len() + 8).div_ceil(64) * 64 - 8, 0);
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let mut words: Vec<u32> =
            block.chunks(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]])).collect();
        for at in 16..64 {
            let (one, other) = (words[at - 15], words[at - 2]);
            let one = one.rotate_right(7) ^ one.rotate_right(18) ^ one >> 3;
            let other = other.rotate_right(17) ^ other.rotate_right(19) ^ other >> 10;
            words.push(words[at - 16].wrapping_add(one).wrapping_add(words[at - 7]).wrapping_add(other));
        }
        let mut now = state.clone();
        for (word, round) in words.iter().zip(&rounds) {
            let (a, e) = (now[0], now[4]);
            let choice = e & now[5] ^ !e & now[6];
            let first = [e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25), choice, *round, *word]
                .iter()
                .fold(now[7], |sum, part| sum.wrapping_add(*part));
            let most = a & now[1] ^ a & now[2] ^ now[1] & now[2];
            let second = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22)).wrapping_add(most);
            now.rotate_right(1);
            now[0] = first.wrapping_add(second);
            now[4] = now[4].wrapping_add(first);
        }
        state.iter_mut().zip(now).for_each(|(word, other)| *word = word.wrapping_add(other));
    }
    let mut hash = [0; 32];
    hash.chunks_mut(4).zip(state).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    hash
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let four = |three: &[u8]| {
        let number = three.iter().enumerate().fold(0, |sum, (at, byte)| sum | usize::from(*byte) << (16 - 8 * at));
        let letter = |at: usize| if at > three.len() { '=' } else { LETTERS[number >> (18 - 6 * at) & 63].into() };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(four).collect()
}
