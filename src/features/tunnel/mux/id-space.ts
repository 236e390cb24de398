import type { TunnelId } from "#wire/konnectivity";

/** The first id of connections that a server accepts from an agent: the range of an id tells its direction (docs/spec/tunnel.md#3). */
export const FIRST_REVERSE_ID = 2 ** 40;

/** Which end of a link this is. It decides which ids this end assigns. */
export type LinkSide = "server" | "agent";

/** Which ids belong to connections that this side dialled. */
export interface IdSpace {
  readonly side: LinkSide;
  /** Agents dial too (`reverse/1`), so that the range of an id tells its direction. Without it an agent may choose any int64. */
  readonly reverse: boolean;
}

/** Whether a connection of that id was dialled by this side. */
export function dialledByUs({ side, reverse }: IdSpace, id: TunnelId): boolean {
  const isReverse = reverse && id >= FIRST_REVERSE_ID;
  return side === "agent" ? isReverse : !isReverse;
}
