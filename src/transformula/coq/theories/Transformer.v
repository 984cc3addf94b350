(* What a stored Transformer computes: the definitions that a reader has to believe. There is no proof in this file. *)
Require Import Reals List NArith ZArith.
Import ListNotations.
Open Scope R_scope.

(* A matrix is the list of its stored entries, each the exact rational numerator / denominator; the others are zero. *)
Record entry := Entry { at_row : N; at_column : N; numerator : Z; denominator : positive }.
Definition matrix := list entry.
Definition vector := N -> R.
Definition stream := N -> vector.  (* token, then slot *)
Definition number (e : entry) : R := IZR (numerator e) / IZR (Zpos (denominator e)).
Fixpoint sum (l : list R) : R := match l with [] => 0 | x :: l => x + sum l end.
Definition row (m : matrix) (r : N) (v : vector) : R :=
  sum (map (fun e => if N.eqb (at_row e) r then number e * v (at_column e) else 0) m).
Definition first (n : N) : list N := map N.of_nat (seq 0 (N.to_nat n)).  (* 0, 1, .., n - 1 *)
Definition ones : vector := fun _ => 1.

(* Attention: softmax, or Fang's hardmax, which keeps the first largest score and zeroes the others. *)
Inductive kind := Softmax | Hardmax.
Definition softmax (scores : list R) : list R := map (fun s => exp s / sum (map exp scores)) scores.
Fixpoint largest (l : list R) : R := match l with [] => 0 | [s] => s | s :: l => Rmax s (largest l) end.
Fixpoint keep (best : R) (l : list R) : list R :=
  match l with [] => [] | s :: l => if Req_EM_T s best then s :: map (fun _ => 0) l else 0 :: keep best l end.
Definition pattern (k : kind) (scores : list R) : list R :=
  match k with Softmax => softmax scores | Hardmax => keep (largest scores) scores end.
Record head := Head { size : N; query : matrix; key : matrix; value : matrix; projection : option matrix }.
Definition score (h : head) (s : stream) (t t' : N) : R :=
  sum (map (fun r => row (query h) r (s t) * row (key h) r (s t')) (first (size h))).
Definition mixed (k : kind) (tokens : list N) (h : head) (s : stream) (t : N) : vector := fun slot =>
  sum (map (fun p => fst p * snd p)
    (combine (pattern k (map (score h s t) tokens)) (map (fun t' => row (value h) slot (s t')) tokens))).
Definition heard (k : kind) (tokens : list N) (s : stream) (t slot : N) (h : head) : R :=
  match projection h with None => mixed k tokens h s t slot | Some o => row o slot (mixed k tokens h s t) end.

(* A block: attention, then a ReLU layer token by token, both with residual. *)
Record layer := Layer { hidden : matrix; hidden_bias : matrix; outgoing : matrix; outgoing_bias : matrix }.
Definition activation (f : layer) (z : vector) : vector := fun u =>
  Rmax 0 (row (hidden f) u z + row (hidden_bias f) u ones).
Definition fed (f : layer) (z : vector) : vector := fun slot =>
  row (outgoing f) slot (activation f z) + row (outgoing_bias f) slot ones.
Record block := Block { attention : kind; heads : list head; feed_forward : option layer }.
Definition attended (tokens : list N) (b : block) (s : stream) : stream := fun t slot =>
  s t slot + sum (map (heard (attention b) tokens s t slot) (heads b)).
Definition run (tokens : list N) (s : stream) (b : block) : stream := fun t slot =>
  let z := attended tokens b s t in
  match feed_forward b with None => z slot | Some f => z slot + fed f z slot end.

(* A model: affine embedding of the inputs into all tokens, blocks, affine readout of all tokens. *)
Record model := Model { tokens : N; width : N; embedding : matrix; memory : matrix; blocks : list block;
                        readout : matrix; bias : matrix }.
Definition embed (M : model) (x : vector) : stream := fun t slot =>
  row (embedding M) (t * width M + slot) x + row (memory M) t (fun k => if N.eqb k slot then 1 else 0).
Definition final (M : model) (x : vector) : stream := fold_left (run (first (tokens M))) (blocks M) (embed M x).
Definition output (M : model) (x : vector) (o : N) : R :=
  row (readout M) o (fun c => final M x (c / width M)%N (c mod width M)%N) + row (bias M) o ones.
Definition inputs (l : list R) : vector := fun k => nth (N.to_nat k) l 0.
