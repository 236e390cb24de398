import { NftError } from "#kernel/nft";

/** Something was named that is not there. */
export function isNftNotFound(error: unknown): boolean {
  return error instanceof NftError && error.code === "not-found";
}
