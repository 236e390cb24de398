/** The sides that bench/tunnel.ts compares, each a server process and an agent process. */

import { readFileSync } from "node:fs";
import { connect as connectTcp, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import {
  type ClientDuplexStream,
  credentials,
  loadPackageDefinition,
  Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

/** Files of certificates. */
export interface Tls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** The settings of a peer's process. */
export interface PeerOptions {
  /** The socket for clients. */
  readonly uds: string;
  /** The port between server and agent. */
  readonly port: number;
  readonly tls: Tls;
}

/** Connects two sockets like a splicing hop: relays bytes and half-close in both directions. */
function splice(one: Socket, other: Socket): void {
  one.pipe(other);
  other.pipe(one);
  one.on("error", () => other.destroy());
  other.on("error", () => one.destroy());
}

/** The first hop of plain TCP: clients connect to a UNIX socket. The target's port comes in the first line. */
export function plainServer({ uds, port }: PeerOptions): Promise<void> {
  return firstHop(uds, () => connectTcp({ ...LOOPBACK, port }));
}

/** The same with TLS between the hops, a session for each connection: what Node's sockets and TLS cost without any tunnel. */
export function tlsServer({ uds, port, tls }: PeerOptions): Promise<void> {
  const identity = identityOf(tls);
  return firstHop(uds, () => connectTls({ ...LOOPBACK, port, servername: "localhost", ...identity }));
}

/** The second hop: reads `PORT\n`, connects, answers `\n`. */
export function plainAgent({ port }: PeerOptions): Promise<void> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, secondHop);
  return new Promise((resolve) => server.listen(port, LOOPBACK.host, resolve));
}

/** The same, for {@link tlsServer}. */
export function tlsAgent({ port, tls }: PeerOptions): Promise<void> {
  const options = { allowHalfOpen: true, noDelay: true, requestCert: true, ...identityOf(tls) };
  const server = createTlsServer(options, secondHop);
  return new Promise((resolve) => server.listen(port, LOOPBACK.host, resolve));
}

const LOOPBACK = { host: "127.0.0.1", allowHalfOpen: true, noDelay: true } as const;

function identityOf({ ca, cert, key }: Tls): Readonly<Record<"ca" | "cert" | "key", Buffer>> {
  return { ca: readFileSync(ca), cert: readFileSync(cert), key: readFileSync(key) };
}

function firstHop(uds: string, next: () => Socket): Promise<void> {
  const server = createServer({ allowHalfOpen: true }, (client) => splice(client, next()));
  return new Promise((resolve) => server.listen(uds, resolve));
}

function secondHop(client: Socket): void {
  client.once("data", (head: Buffer) => {
    client.pause();
    const end = connectTcp({ ...LOOPBACK, port: Number.parseInt(head.toString(), 10) });
    end.once("connect", () => {
      client.write("\n");
      splice(client, end);
    });
    end.once("error", () => client.destroy());
  });
  client.on("error", () => client.destroy());
}

interface Packet {
  readonly type: string;
  readonly dialRequest?: { readonly protocol: string; readonly address: string; readonly random: string };
  readonly dialResponse?: { readonly error: string; readonly connectID: string; readonly random: string };
  readonly data?: { readonly connectID: string; readonly data: Buffer };
  readonly closeRequest?: { readonly connectID: string };
  readonly closeResponse?: { readonly connectID: string; readonly error: string };
}
const PROTO = join(import.meta.dirname, "../test/support/konnectivity.proto");
const definition = loadSync(PROTO, { longs: String, enums: String, keepCase: true });
const services = loadPackageDefinition(definition) as unknown as {
  readonly AgentService: {
    readonly service: Parameters<Server["addService"]>[0];
    new (
      address: string,
      creds: ReturnType<typeof credentials.createSsl>,
      options: object,
    ): {
      Connect(metadata: Metadata): ClientDuplexStream<Packet, Packet>;
    };
  };
};
const OPTIONS = {
  "grpc.max_receive_message_length": 8 << 20,
  "grpc-node.flow_control_window": 4 << 20,
  "grpc.ssl_target_name_override": "localhost",
};

/** A CONNECT front end and AgentService on grpc-js, with the back-pressure of the shared stream. */
export function grpcServer({ uds, port, tls }: PeerOptions): Promise<void> {
  let agent: ServerDuplexStream<Packet, Packet> | undefined;
  const dials = new Map<string, (id: string, error: string) => void>();
  const sockets = new Map<string, Socket>();
  let random = 1;
  const server = new Server(OPTIONS);
  server.addService(services.AgentService.service, {
    Connect: (stream: ServerDuplexStream<Packet, Packet>) => {
      const headers = new Metadata();
      headers.set("serverid", "grpc-js");
      headers.set("servercount", "1");
      stream.sendMetadata(headers);
      agent = stream;
      stream.setMaxListeners(0);
      stream.on("error", () => undefined);
      stream.on("data", (packet: Packet) => {
        if (packet.type === "DIAL_RSP" && packet.dialResponse !== undefined) {
          const { random: which, connectID, error } = packet.dialResponse;
          dials.get(which)?.(connectID, error);
          dials.delete(which);
        } else if (packet.type === "DATA" && packet.data !== undefined) {
          const socket = sockets.get(packet.data.connectID);
          if (socket?.destroyed === false && !socket.write(packet.data.data)) {
            stream.pause();
            socket.once("drain", () => stream.resume());
          }
        } else if (packet.type === "CLOSE_RSP" && packet.closeResponse !== undefined) {
          sockets.get(packet.closeResponse.connectID)?.end();
          sockets.delete(packet.closeResponse.connectID);
        }
      });
    },
  });
  const front = createServer({ allowHalfOpen: true }, (client) => {
    client.on("error", () => client.destroy());
    client.once("data", (head: Buffer) => {
      client.pause();
      const address = /^CONNECT (\S+) /.exec(head.toString())?.[1] ?? "";
      const which = String(random++);
      dials.set(which, (connectID, error) => {
        if (error !== "") {
          client.destroy();
          return;
        }
        sockets.set(connectID, client);
        client.write("HTTP/1.1 200 Connection Established\r\n\r\n");
        client.on("data", (data: Buffer) => {
          if (agent?.write({ type: "DATA", data: { connectID, data } }) === false) {
            client.pause();
            agent.once("drain", () => client.resume());
          }
        });
        const close = (): void => void agent?.write({ type: "CLOSE_REQ", closeRequest: { connectID } });
        client.once("end", close);
        client.once("close", () => {
          if (!client.readableEnded) close();
          // The stream may have waited for this connection.
          agent?.resume();
          sockets.delete(connectID);
        });
        client.resume();
      });
      agent?.write({ type: "DIAL_REQ", dialRequest: { protocol: "tcp", address, random: which } });
    });
  });
  const { ca, cert, key } = identityOf(tls);
  const creds = ServerCredentials.createSsl(ca, [{ cert_chain: cert, private_key: key }], true);
  return new Promise((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${port}`, creds, (error) => {
      if (error !== null) reject(error);
      else front.listen(uds, resolve);
    });
  });
}

/** An agent on grpc-js. */
export function grpcAgent({ port, tls }: PeerOptions): Promise<void> {
  const { ca, cert, key } = identityOf(tls);
  const creds = credentials.createSsl(ca, key, cert);
  const client = new services.AgentService(`127.0.0.1:${port}`, creds, OPTIONS);
  const metadata = new Metadata();
  metadata.set("agentid", "grpc-js");
  const stream = client.Connect(metadata);
  const sockets = new Map<string, Socket>();
  let next = 1;
  stream.on("error", () => process.exit(1));
  stream.on("data", (packet: Packet) => {
    if (packet.type === "DIAL_REQ" && packet.dialRequest !== undefined) {
      const { address, random } = packet.dialRequest;
      const connectID = String(next++);
      const [host, port] = address.split(":");
      const socket = connectTcp({ host: host ?? "", port: Number(port), allowHalfOpen: true, noDelay: true });
      sockets.set(connectID, socket);
      socket.once("connect", () => stream.write({ type: "DIAL_RSP", dialResponse: { connectID, random, error: "" } }));
      socket.on("data", (data: Buffer) => {
        if (stream.write({ type: "DATA", data: { connectID, data } })) return;
        socket.pause();
        stream.once("drain", () => socket.resume());
      });
      socket.on("error", () => socket.destroy());
      socket.on("end", () => {
        stream.write({ type: "CLOSE_RSP", closeResponse: { connectID, error: "" } });
        sockets.delete(connectID);
        socket.end();
      });
    } else if (packet.type === "DATA" && packet.data !== undefined) {
      sockets.get(packet.data.connectID)?.write(packet.data.data);
    } else if (packet.type === "CLOSE_REQ" && packet.closeRequest !== undefined) {
      const { connectID } = packet.closeRequest;
      const socket = sockets.get(connectID);
      sockets.delete(connectID);
      socket?.end(() => {
        stream.write({ type: "CLOSE_RSP", closeResponse: { connectID, error: "" } });
        socket.destroy();
      });
    }
  });
  stream.setMaxListeners(0);
  return new Promise((resolve) => stream.once("metadata", () => resolve()));
}
