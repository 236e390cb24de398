import type { PortStep } from "../../plan/plan-pass.ts";
import { bind, unbind } from "./bind.ts";
import { giveUp } from "./give-up.ts";
import { lookUp } from "./look-up.ts";
import { make } from "./make.ts";
import { regroup } from "./regroup.ts";
import { forAll, type PortWork } from "./work.ts";

/**
 * Does one step of a claim at its provider. What the provider refuses is in the status of the record afterwards. Rejects with what is no failure of the
 * provider, after it has noted what it knows.
 */
export async function askProvider(step: PortStep, work: PortWork): Promise<void> {
  work.touch();
  try {
    await perform(step, work);
  } finally {
    work.touch();
  }
}

async function perform(step: PortStep, work: PortWork): Promise<void> {
  switch (step.do) {
    case "refuse":
      work.fail({ reason: "QuotaExceeded", message: step.why, retry: "slow" });
      return;
    case "look-up":
      return await lookUp(work);
    case "give-up":
      return await giveUp(step.names, work);
    case "regroup":
      return await forAll(step.nics, (wish) => regroup(wish, work));
    case "make":
      return await make(step, work);
    case "unbind":
      return await forAll(step.nics, ({ name }) => unbind(name, work));
    case "bind":
      return await forAll(step.nics, ({ name }) => bind(name, step.host, work));
  }
}
