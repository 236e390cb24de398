import type { AbortOptions } from "#base/async";
import { IpAddress } from "#base/ip";
import { printable } from "#base/text";
import { clientWayText, type RouterEnd, routerText } from "#features/egress";
import { type Explanation, explanationText, type Question } from "#features/service-proxy";
import type { Pod } from "#kube/client";
import type { PodWay, PodWays } from "./pod-way.ts";

/** The answer: in the pod, on the node, at the routers. */
export interface WholeAnswer {
  /** Absent: nobody's pod sends the packet, or it may not be read. */
  readonly inPod?: PodWay;
  /** On the node: of the tunnel's packets if the packet goes into a tunnel. Absent: the packet does not leave the pod. */
  readonly explanation?: Explanation;
  /** The packet of the question, if `explanation` is not of it. */
  readonly asked?: Pick<Explanation, "from" | "packet">;
  /** The routers of a tunnel's packets. */
  readonly routers?: readonly RouterEnd[];
}

/** Follows a packet from its pod on. `explanation` is that of the packet as it is asked for. Rejects as {@link PodWays.of}. */
export async function followPod(
  ways: PodWays,
  pod: Pod,
  {
    question,
    explanation,
    onNode,
    isAnswer,
    signal,
  }: AbortOptions & {
    readonly question: Question;
    readonly explanation: Explanation;
    readonly onNode: (question: Question) => Promise<Explanation>;
    readonly isAnswer: boolean;
  },
): Promise<WholeAnswer> {
  const destination = IpAddress.parse(explanation.packet.destination);
  const inPod = await ways.of(pod, destination, { isAnswer, ...(signal === undefined ? {} : { signal }) });
  const asked = { from: explanation.from, packet: explanation.packet };
  if (inPod.kind === "not-read" || inPod.way.outcome === "link") return { inPod, explanation };
  const { tunnel, outcome } = inPod.way;
  if (outcome !== "tunnel" || tunnel === undefined) return { inPod, asked };
  const toRouter: Question = {
    source: question.source,
    destination: { kind: "address", address: tunnel.remote },
    port: tunnel.port,
    protocol: "UDP",
  };
  const outer = await onNode(toRouter);
  return { inPod, asked, explanation: outer, routers: await ways.routers(outer.arrivals) };
}

/** As `--json` prints it: the fields of the node's answer, and those of the others. Pure. */
export function answerJson({ inPod, explanation, asked, routers }: WholeAnswer): object {
  return {
    ...explanation,
    ...(asked === undefined ? {} : { asked }),
    ...(inPod === undefined ? {} : { inPod }),
    ...(routers === undefined ? {} : { routers }),
  };
}

/** The answer as text for people. Pure. */
export function answerText({ inPod, explanation, asked, routers }: WholeAnswer): string {
  const parts: string[][] = [];
  if (inPod?.kind === "read") {
    const { from, packet } = asked ?? explanation ?? { from: "", packet: undefined };
    const head =
      packet === undefined
        ? []
        : [`${from} (${packet.source}) to ${packet.destination} port ${packet.port}/${packet.protocol}`, ""];
    parts.push([...head, ...clientWayText(inPod, inPod.namespace)]);
  }
  if (explanation !== undefined) parts.push(explanationText(explanation).trimEnd().split("\n"));
  if (routers !== undefined && routers.length > 0) parts.push(routerText(routers));
  if (inPod?.kind === "not-read") parts.push([`note: ${inPod.why}`]);
  return `${parts.map((lines) => lines.map(printable).join("\n")).join("\n\n")}\n`;
}
