/** Events of a run, in pages. */
import { ask, client, type Schemas } from "../core/api";
import { PAGE, Pages } from "../core/pages";

export type EventItem = Schemas["EventItem"];

export class EventPages {
  private readonly pages: Pages<EventItem>;

  constructor(run: string) {
    this.pages = new Pages(async (after, abort) => {
      const query = { after, until: after + PAGE, limit: PAGE };
      const found = await ask(client.GET("/v1/runs/{run}/events", { params: { path: { run }, query }, signal: abort }));
      return (found as Schemas["EventPage"]).events;
    });
  }

  /** Rises when a page has come: what is shown of `get` may be another. */
  get changed() {
    return this.pages.changed;
  }

  get problem() {
    return this.pages.problem;
  }

  /** The event of a version, if its page is here. */
  get(version: number): EventItem | undefined {
    return this.pages.get(version - 1);
  }

  /** Load the pages of these versions; requests for others end. */
  want(first: number, last: number, head: number): void {
    this.pages.want(first - 1, last - 1, head);
  }

  /** Load the page of a version whatever is in sight. */
  need(version: number): void {
    this.pages.need(version - 1);
  }

  close(): void {
    this.pages.close();
  }
}
