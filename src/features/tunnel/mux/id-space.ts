import type { TunnelId } from "#wire/konnectivity";

/** The first id of connections that a server accepts from an agent: the range of an id shows its direction (docs/spec/tunnel.md#3). */
export const FIRST_REVERSE_ID = 2 ** 40;

/** The end of a link on which this process is. It decides which ids this side assigns. */
export type LinkSide = "server" | "agent";

/** Decides which ids belong to connections that this side dialled. */
export interface IdSpace {
  readonly side: LinkSide;
  /** True if agents dial too (`reverse/1`), so that the range of an id shows its direction. If false, an agent may choose any int64. */
  readonly reverse: boolean;
}

/** Returns true if a connection of that id was dialled by this side. */
export function dialledByUs({ side, reverse }: IdSpace, id: TunnelId): boolean {
  const isReverse = reverse && id >= FIRST_REVERSE_ID;
  return side === "agent" ? isReverse : !isReverse;
}
