/**
 * A server like Konnectivity's, on `@grpc/grpc-js`: it passes packets between frontends and the newest agent, reads only their ids, and
 * has one table for all dials. It reports violations of the protocol by agents and clients.
 */
import { readFileSync, rmSync } from "node:fs";
import { Metadata, Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import {
  type GrpcPacket,
  PACKET_TYPES,
  type Peer,
  type Places,
  type RunningServer,
  TUNNEL_SERVICES,
} from "#test/tunnel-peer";

type Call = ServerDuplexStream<GrpcPacket, GrpcPacket>;

/** Our agent never sends more. */
const MAX_DATA_BYTES = 64 * 1024;

/** A server like Konnectivity's. */
export const grpcServer: Peer<RunningServer> = {
  name: "grpc-js",
  isOurs: false,
  start: (places) => GrpcServer.listen(places),
};

interface Agent {
  readonly call: Call;
  readonly connections: Map<string, Frontend>;
  /** Ids that have been closed by the agent. */
  readonly closed: Set<string>;
  /** Ids of which the agent was sent a CLOSE_REQ. */
  readonly asked: Set<string>;
}

interface Frontend {
  readonly call: Call;
  agent: Agent | undefined;
  random: string;
  connectID: string | undefined;
}

class GrpcServer implements RunningServer {
  readonly violations: string[] = [];
  readonly #frontends = new Server();
  readonly #agents = new Server();
  readonly #connected = new Set<Agent>();
  readonly #pending = new Map<string, Frontend>();

  private constructor() {
    this.#frontends.addService(TUNNEL_SERVICES.proxy, { Proxy: (call: Call) => this.#serveFrontend(call) });
    this.#agents.addService(TUNNEL_SERVICES.agent, { Connect: (call: Call) => this.#serveAgent(call) });
  }

  static async listen(places: Places): Promise<GrpcServer> {
    const server = new GrpcServer();
    const [ca, key, cert] = ["ca.crt", "server.key", "server.crt"].map((name) => readFileSync(places.file(name)));
    const pairs = [{ private_key: key ?? Buffer.alloc(0), cert_chain: cert ?? Buffer.alloc(0) }];
    rmSync(places.udsPath, { force: true });
    await bind(server.#frontends, `unix:${places.udsPath}`, ServerCredentials.createInsecure());
    await bind(server.#agents, `127.0.0.1:${places.agentPort}`, ServerCredentials.createSsl(ca ?? null, pairs, true));
    return server;
  }

  async kill(): Promise<void> {
    this.#frontends.forceShutdown();
    this.#agents.forceShutdown();
  }

  async hasAgent(): Promise<boolean> {
    return this.#connected.size > 0;
  }

  #serveAgent(call: Call): void {
    const ids = call.metadata.get("agentID");
    if (ids.length !== 1) this.violations.push(`an agent came with ${ids.length} agentID headers`);
    const headers = new Metadata();
    headers.set("serverID", "upstream-like-server");
    headers.set("serverCount", "1");
    call.sendMetadata(headers);
    const agent: Agent = { call, connections: new Map(), closed: new Set(), asked: new Set() };
    this.#connected.add(agent);
    const gone = (): void => {
      this.#connected.delete(agent);
      for (const [connectID, frontend] of agent.connections) {
        frontend.call.write({ type: "CLOSE_RSP", closeResponse: { connectID } });
      }
      agent.connections.clear();
    };
    call.on("data", (packet: GrpcPacket) => this.#fromAgent(agent, packet));
    call.on("error", gone);
    call.on("cancelled", gone);
    call.on("end", () => {
      gone();
      call.end();
    });
  }

  #fromAgent(agent: Agent, packet: GrpcPacket): void {
    switch (packet.type) {
      case "DIAL_RSP":
        this.#dialAnswered(agent, packet);
        break;
      case "DATA":
        this.#dataFromAgent(agent, packet);
        break;
      case "CLOSE_RSP": {
        const { connectID = "0", error = "" } = packet.closeResponse ?? {};
        const frontend = agent.connections.get(connectID);
        // A CLOSE_REQ that has crossed the CLOSE_RSP is one of an unknown id (docs/spec/tunnel.md#5.3).
        const isCrossed = error === "Unknown connectID" && agent.asked.has(connectID);
        if (agent.closed.has(connectID) && !isCrossed)
          this.violations.push(`an agent closed connection ${connectID} twice`);
        if (isCrossed) agent.asked.delete(connectID);
        agent.closed.add(connectID);
        agent.connections.delete(connectID);
        frontend?.call.write(packet);
        break;
      }
      case "DIAL_CLS":
      case "DRAIN":
        break;
      default:
        this.violations.push(
          PACKET_TYPES.some((one) => one === packet.type)
            ? `a server was sent ${packet.type} by an agent`
            : `a server without capabilities was sent type ${packet.type}`,
        );
    }
  }

  #dialAnswered(agent: Agent, packet: GrpcPacket): void {
    const { random = "", connectID = "0", error = "" } = packet.dialResponse ?? {};
    const frontend = this.#pending.get(random);
    if (frontend === undefined) {
      if (error === "") askToClose(agent, connectID);
      return;
    }
    this.#pending.delete(random);
    if (error === "") {
      if (Number(connectID) < 1) this.violations.push(`an agent chose connection id ${connectID}`);
      if (agent.connections.has(connectID)) this.violations.push(`an agent used connection id ${connectID} twice`);
      agent.connections.set(connectID, frontend);
      frontend.connectID = connectID;
    }
    frontend.call.write(packet);
  }

  #dataFromAgent(agent: Agent, packet: GrpcPacket): void {
    const { connectID = "0", data } = packet.data ?? {};
    if (data !== undefined && data.length > MAX_DATA_BYTES)
      this.violations.push(`a DATA packet had ${data.length} bytes`);
    if (agent.closed.has(connectID)) this.violations.push(`an agent sent DATA behind CLOSE_RSP of ${connectID}`);
    const frontend = agent.connections.get(connectID);
    if (frontend === undefined) askToClose(agent, connectID);
    else forward(packet, agent.call, frontend.call);
  }

  #serveFrontend(call: Call): void {
    const frontend: Frontend = { call, agent: undefined, random: "", connectID: undefined };
    call.on("data", (packet: GrpcPacket) => this.#fromFrontend(frontend, packet));
    const gone = (): void => {
      this.#pending.delete(frontend.random);
      const { agent, connectID } = frontend;
      if (agent === undefined || connectID === undefined || !agent.connections.delete(connectID)) return;
      askToClose(agent, connectID);
    };
    call.on("error", gone);
    call.on("cancelled", gone);
    call.on("end", () => {
      gone();
      call.end();
    });
  }

  #fromFrontend(frontend: Frontend, packet: GrpcPacket): void {
    const [agent] = [...this.#connected].slice(-1);
    switch (packet.type) {
      case "DIAL_REQ": {
        const random = packet.dialRequest?.random ?? "";
        if (agent === undefined) {
          frontend.call.write({ type: "DIAL_RSP", dialResponse: { random, error: "No agent available" } });
          return;
        }
        frontend.agent = agent;
        frontend.random = random;
        this.#pending.set(random, frontend);
        agent.call.write(packet);
        break;
      }
      case "DIAL_CLS":
        this.#pending.delete(packet.closeDial?.random ?? "");
        break;
      case "DATA":
        if (frontend.agent !== undefined) forward(packet, frontend.call, frontend.agent.call);
        break;
      case "CLOSE_REQ":
        frontend.agent?.asked.add(packet.closeRequest?.connectID ?? "0");
        if (frontend.agent !== undefined) forward(packet, frontend.call, frontend.agent.call);
        break;
      default:
        this.violations.push(`a server was sent ${packet.type} by a client`);
    }
  }
}

function askToClose(agent: Agent, connectID: string): void {
  agent.asked.add(connectID);
  agent.call.write({ type: "CLOSE_REQ", closeRequest: { connectID } });
}

/** A sender that is ahead of its reader waits: Konnectivity's server blocks there. */
function forward(packet: GrpcPacket, from: Call, to: Call): void {
  if (to.write(packet)) return;
  from.pause();
  const resume = (): void => {
    to.off("drain", resume).off("cancelled", resume);
    from.resume();
  };
  to.on("drain", resume).on("cancelled", resume);
}

function bind(server: Server, address: string, credentials: ServerCredentials): Promise<void> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, credentials, (error) => (error === null ? resolve() : reject(error)));
  });
}
