import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import type { Health } from "#base/health";
import { keepServedMark } from "../served-mark/index.ts";
import type { Part } from "./part.ts";

/** The part that keeps the served mark of a CNI socket. The daemon must listen there before. `dirty` is marked when `canServe` becomes true; default: it always can. */
export function servedMarkPart({
  socket,
  health,
  canServe = () => true,
  dirty = new Dirty(),
}: {
  readonly socket: string;
  readonly health: Health;
  readonly canServe?: () => boolean;
  readonly dirty?: Dirty;
}): Part {
  const part = health.part("served-mark");
  return {
    name: "served-mark",
    run: (at) => keepServedMark({ socket, canServe, dirty, health: part, clock: systemClock }, at),
  };
}
