import { printable } from "#base/text";
import type { Arrival, Explanation } from "./answer.ts";

/** The answer as text for people. Pure. */
export function explanationText(explanation: Explanation): string {
  const { node, table, from, packet, decidedBy, notes } = explanation;
  const { source, destination, port, protocol } = packet;
  const sender = from === "an address" ? source : `${from} (${source})`;
  const lines = [
    `${sender} to ${destination} port ${port}/${protocol}, on node ${node}`,
    "",
    ...outcomeLines(explanation),
    ...(decidedBy === undefined ? [] : decisionLines(decidedBy, table)),
    ...stepLines(explanation),
    ...(notes.length === 0 ? [] : ["", ...notes.map((note) => `note: ${note}`)]),
  ];
  return `${lines.map(printable).join("\n")}\n`;
}

function outcomeLines({ outcome, service, arrivals, packet, table }: Explanation): string[] {
  const whose = service === undefined ? "" : `, by ${service}`;
  switch (outcome) {
    case "translated":
      return [
        arrivals.length === 1
          ? `goes to one endpoint${whose}:`
          : `goes to one of ${arrivals.length} endpoints${whose}:`,
        ...arrivals.map((arrival) => `  ${arrivalText(arrival)}`),
      ];
    case "untouched":
      return [`is not changed: no rule of table ${table} sends it to another address than ${packet.destination}`];
    case "dropped":
      return [`is dropped${whose}`];
    case "rejected":
      return [`is rejected${whose}: the sender gets an error`];
  }
}

function arrivalText({ address, port, masqueraded, node, pod }: Arrival): string {
  const place = [pod === undefined ? [] : `pod ${pod}`, node === undefined ? [] : `on ${node}`].flat().join(" ");
  const sender = masqueraded
    ? "receives it with this node's address as the source"
    : "receives it with the sender's own address as the source";
  return `${address.includes(":") ? `[${address}]` : address}:${port}${place === "" ? "" : `  ${place}`}; ${sender}`;
}

function decisionLines({ chain, rule, set, element }: NonNullable<Explanation["decidedBy"]>, table: string): string[] {
  return [
    "",
    `decided by chain ${chain} of table ${table}:`,
    `  ${rule}`,
    ...(element === undefined ? [] : [`by the element of set ${set}:`, `  ${element}`]),
  ];
}

/** Prints several actions of one rule as one line. */
function stepLines({ steps, arrivals }: Explanation): string[] {
  if (steps.length === 0) return [];
  const rows = steps.filter(({ chain, text }, at) => steps[at - 1]?.chain !== chain || steps[at - 1]?.text !== text);
  const width = Math.max(...rows.map(({ chain }) => chain.length));
  const drawn = arrivals.length > 1 ? ", with the first endpoint drawn" : "";
  return ["", `on its way${drawn}:`, ...rows.map(({ chain, text }) => `  ${chain.padEnd(width)}  ${text}`)];
}
