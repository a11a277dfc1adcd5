// Search when the site is opened as files: browsers start no workers there, so the worker's script runs in a hidden
// frame instead. Over HTTP nothing is changed. The theme looks for the name IFrameWorker, and its plugin for this file's.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(address) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const { contentWindow: inside, contentDocument: page } = this.#frame;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.#loaded = new Promise((done) => {
        const script = page.createElement("script");
        script.src = address;
        script.onload = done;
        page.body.append(script);
      });
    }

    async postMessage(data) {
      await this.#loaded;
      this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
