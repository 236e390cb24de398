/**
 * Imported first by the executable, for its effects: what must be so before the rest of it is loaded, by the program that is called.
 *
 * - SIGHUP ends no program that reads its files again at that signal. Later each program catches it itself; what it reads, it reads
 *   after this.
 * - The young generation of the tunnel's heaps stays as small as it is now. What they allocate is read, passed on and garbage: in two
 *   MiB, which stay in the processor's cache, that is collected as cheaply as in V8's 32, and its buffers are given back
 *   sooner. On 2 cores (bench/tunnel.ts) one connection has 1.4 times the throughput, and each process 50 MiB less. Once the
 *   executable is loaded it would have grown already. Daemons that do little at a time keep 6 MiB less by it.
 */
import { basename } from "node:path";
import { setFlagsFromString } from "node:v8";

const RELOADS = new Set(["proxy-server", "sni-router", "uplink-proxy"]);
const PASSES_ON = new Set(["proxy-server", "proxy-agent"]);
/** They do little at a time, on every node or beside an API server. */
const SMALL = new Set(["coild", "coil-router", "coil-ipam-controller", "sni-router", "service-proxy", "node"]);
const calledAs = process.env["ISTHMUS_CALLED_AS"] ?? basename(process.argv[1] ?? "");
/** The program, or those that `isthmus node` runs together. */
const called = [calledAs, process.argv[2] ?? ""];
const named = called.includes("node") ? process.argv : called;
const isCalled = (programs: ReadonlySet<string>): boolean => named.some((name) => programs.has(name));

if (isCalled(RELOADS)) process.on("SIGHUP", () => undefined);
if (isCalled(PASSES_ON) || isCalled(SMALL)) setFlagsFromString("--semi-space-growth-factor=1");
