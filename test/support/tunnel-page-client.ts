/**
 * A program with the flags of Konnectivity's `proxy-test-client`, for tests that have none: asks for a page through the tunnel and prints the answer.
 *
 *     node tunnel-page-client.ts --mode=grpc --proxy-uds=SOCKET --request-host=HOST --request-port=PORT --request-path=PATH
 */
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { ourClient } from "#test/tunnel-peer-ours";

const flags = ["mode", "proxy-uds", "proxy-host", "proxy-port", "request-proto", "request-host", "request-port"];
const options = Object.fromEntries([...flags, "request-path"].map((name) => [name, { type: "string" } as const]));
const { values } = parseArgs({ options });
const udsPath = values["proxy-uds"] ?? "";
// Places beside the socket are for servers and agents.
const client = await ourClient.start({ udsPath, agentPort: 0, serverHealthPort: 0, file: (name) => name });
const connection = await client.dial(`${values["request-host"]}:${values["request-port"]}`);
connection.write(`GET /${values["request-path"]} HTTP/1.0\r\nHost: ${values["request-host"]}\r\n\r\n`);
process.stdout.write(await text(connection));
