export { planMasquerade, syncMasquerade } from "./masquerade.ts";
export { planRouter, routerScope } from "./plan.ts";
