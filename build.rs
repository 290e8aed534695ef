//! Compiles our .proto files to Rust types and to a descriptor set. protox is a compiler in Rust: no protoc is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost_reflect::prost::Message;

const PROTO_DIR: &str = "src/proto/etcd";
const PROTO_FILES: [&str; 7] =
    ["kv.proto", "auth.proto", "lease.proto", "rpc.proto", "lock.proto", "election.proto", "raft.proto"];
/// Messages that carry a password, its hash or a token: what they show of themselves is written by hand.
const SECRETS: [&str; 6] = [
    ".authpb.User",
    ".etcdserverpb.AuthenticateRequest",
    ".etcdserverpb.AuthenticateResponse",
    ".etcdserverpb.AuthUserAddRequest",
    ".etcdserverpb.AuthUserChangePasswordRequest",
    ".revgatepb.InternalAuthenticateRequest",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_DIR}");
    let descriptors = protox::compile(PROTO_FILES, [PROTO_DIR])?;
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out_dir.join("descriptors.bin"), descriptors.encode_to_vec())?;
    prost_build::Config::new().bytes(["."]).skip_debug(SECRETS).enable_type_names().compile_fds(descriptors)?;
    Ok(())
}
