import { isCloudError } from "#cloud/rest";
import { translate } from "./faults.ts";

/** The value of a request to Neutron. Rejects with `ProviderError` in place of `CloudError`. */
export async function translated<Value>(work: Promise<Value>): Promise<Value> {
  try {
    return await work;
  } catch (error) {
    throw translate(error);
  }
}

/** Waits for a request about an object that may be gone, which is no error. Rejects as {@link translated}. */
export async function unlessGone(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isCloudError(error, "not-found")) throw translate(error);
  }
}
