/** Where something is loading. */
export function Skeletons() {
  return (
    <div role="status" aria-label="loading">
      {[0, 1, 2].map((place) => (
        <p key={place}>
          <span class="skeleton" />
        </p>
      ))}
    </div>
  );
}
