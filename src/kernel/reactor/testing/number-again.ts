/** A program whose descriptor is closed behind the reactor's back, so that the next stream has its number; it then has no other work. */
import { IpAddress } from "#base/ip";
import { close } from "#kernel/ffi";
import { openTcp } from "#kernel/socket";
import { TcpStream } from "../index.ts";

const remote = { address: IpAddress.parse("127.0.0.1"), port: 1 };
const first = openTcp(4);
TcpStream.adopt(first, remote);
close(first);
const second = openTcp(4);
TcpStream.adopt(second, remote).destroy();
process.stdout.write(first === second ? "the same number" : "another number");
